package cli

import (
	"context"
	"sync"

	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds of what is sent to Redis at once.
const (
	chunkJobs  = 4000
	chunkBytes = 4 << 20
)

// chunk is a part of a file on its way to Redis.
type chunk struct {
	specs    []*jobs.Spec
	lines    []int // of the specs
	rejected []rejection
	size     int   // bytes of the specs' lines
	end      int64 // offset in the file
}

func (c *chunk) add(line int, spec *jobs.Spec, size int) {
	c.specs = append(c.specs, spec)
	c.lines = append(c.lines, line)
	c.size += size
}

func (c *chunk) reject(line int, problem string) {
	c.rejected = append(c.rejected, rejection{Line: line, Error: text.OneLine(problem)})
}

func (c *chunk) count() int  { return len(c.specs) + len(c.rejected) }
func (c *chunk) empty() bool { return c.count() == 0 }
func (c *chunk) full() bool  { return c.count() >= chunkJobs || c.size >= chunkBytes }

// merge appends a chunk that follows, unless both together are too large.
func (c *chunk) merge(next *chunk) bool {
	if c.count()+next.count() > chunkJobs || c.size+next.size > chunkBytes {
		return false
	}
	c.specs = append(c.specs, next.specs...)
	c.lines = append(c.lines, next.lines...)
	c.rejected = append(c.rejected, next.rejected...)
	c.size += next.size
	c.end = next.end
	return true
}

// last is the number of its last line.
func (c *chunk) last() int {
	last := 0
	if n := len(c.lines); n > 0 {
		last = c.lines[n-1]
	}
	if n := len(c.rejected); n > 0 {
		last = max(last, c.rejected[n-1].Line)
	}
	return last
}

// handover passes chunks from the reader to the sender. At most one
// is kept; it grows while the sender is busy.
type handover struct {
	ready chan struct{} // there is something to take
	room  chan struct{} // something was taken

	mu      sync.Mutex
	pending *chunk
	closed  bool
	err     error
}

func newHandover() *handover {
	return &handover{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put passes a chunk on, and waits while too much is pending. It returns false
// if ctx ended first.
func (h *handover) put(ctx context.Context, c *chunk) bool {
	for {
		h.mu.Lock()
		fits := h.pending == nil || h.pending.merge(c)
		if h.pending == nil {
			h.pending = c
		}
		h.mu.Unlock()
		if fits {
			signal(h.ready)
			return true
		}
		select {
		case <-h.room:
		case <-ctx.Done():
			return false
		}
	}
}

// close ends the chunks.
func (h *handover) close(err error) {
	h.mu.Lock()
	h.closed, h.err = true, err
	h.mu.Unlock()
	signal(h.ready)
}

// take returns what is pending, nil if nothing is, and whether nothing follows.
func (h *handover) take() (c *chunk, closed bool, err error) {
	h.mu.Lock()
	c, h.pending = h.pending, nil
	closed, err = h.closed, h.err
	h.mu.Unlock()
	signal(h.room)
	return c, closed, err
}

// signal wakes the goroutine that waits on ch, or waits next.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// arena copies lines to where they stay valid, many in one allocation.
type arena struct{ block []byte }

func (a *arena) keep(line []byte) []byte {
	const size = 256 << 10
	if cap(a.block)-len(a.block) < len(line) {
		a.block = make([]byte, 0, max(size, len(line)))
	}
	from := len(a.block)
	a.block = append(a.block, line...)
	return a.block[from:len(a.block):len(a.block)]
}
