package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/jobs"
)

// Bounds of what is sent to Redis at once.
const (
	chunkJobs  = 4000
	chunkBytes = 4 << 20
)

// lineSlack is how much longer than its payload a line may be: path, query,
// headers and names.
const lineSlack = 64 << 10

// rejection is a line that was not enqueued.
type rejection struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// bulkResult is what became of a file.
type bulkResult struct {
	Accepted   int         `json:"accepted"`
	Duplicates int         `json:"duplicates"`
	Rejected   []rejection `json:"rejected"`
}

// lines is how many lines were answered.
func (r *bulkResult) lines() int { return r.Accepted + r.Duplicates + len(r.Rejected) }

// chunk is a part of a file on its way to Redis.
type chunk struct {
	specs    []*jobs.Spec
	lines    []int // of the specs
	rejected []rejection
	size     int   // bytes of its lines
	end      int64 // offset in the file
	arena    []byte
}

func (c *chunk) empty() bool { return len(c.specs)+len(c.rejected) == 0 }

func (c *chunk) full() bool {
	return len(c.specs)+len(c.rejected) >= chunkJobs || c.size >= chunkBytes
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

// keep copies a line to where it stays valid.
func (c *chunk) keep(line []byte) []byte {
	const block = 256 << 10
	if cap(c.arena)-len(c.arena) < len(line) {
		c.arena = make([]byte, 0, max(block, len(line)))
	}
	from := len(c.arena)
	c.arena = append(c.arena, line...)
	return c.arena[from:len(c.arena):len(c.arena)]
}

func (c *chunk) reject(line int, text string) {
	c.rejected = append(c.rejected, rejection{Line: line, Error: clean(text)})
}

// bulk enqueues a file of jobs, one a line.
type bulk struct {
	client      *jobs.Client
	maxPayload  int
	destination string // of lines that name none
	progress    *progress
}

// run reads to the end of in. The error says what stopped it earlier; the result
// counts what was done until then.
//
// The next chunk is read and parsed while one is on its way, and chunks follow
// each other, so that jobs are enqueued in the order of the file. When ctx ends,
// the chunk on its way is finished.
func (b *bulk) run(ctx context.Context, in io.Reader) (*bulkResult, error) {
	result := &bulkResult{Rejected: []rejection{}}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan *chunk)
	var readErr error // settled when chunks is closed
	go func() {
		// A read from a pipe cannot be interrupted: after a cancel this may
		// outlive run, but not the process, which is about to end.
		defer close(chunks)
		readErr = b.parse(stop, in, chunks)
	}()
	defer func() { slices.SortFunc(result.Rejected, func(x, y rejection) int { return x.Line - y.Line }) }()
	last := 0 // line up to which all have been answered
	for {
		select {
		case c, more := <-chunks:
			if !more {
				if readErr != nil {
					return result, b.stopped(result, last, 0, readErr)
				}
				return result, nil
			}
			done, err := b.send(ctx, c, result)
			if err != nil {
				return result, b.stopped(result, done, c.last(), err)
			}
			last = done
		case <-ctx.Done():
			return result, b.stopped(result, last, 0, context.Cause(ctx))
		}
	}
}

// stopped says how far it came and how to go on: all lines to done are answered,
// those after it up to unknown may be enqueued.
func (b *bulk) stopped(r *bulkResult, done, unknown int, cause error) error {
	var text strings.Builder
	fmt.Fprintf(&text, "stopped (%s)", problem(cause))
	fmt.Fprintf(&text, "; %d jobs were accepted; lines 1 to %d are done; go on with: tail -n +%d FILE | tidegate enqueue --file -", r.Accepted, done, done+1)
	if unknown > done {
		fmt.Fprintf(&text, "; lines %d to %d may be enqueued already: only those with an id can be repeated safely", done+1, unknown)
	}
	return &bulkError{text: text.String(), cause: cause}
}

// bulkError is an enqueue of a file that ended early.
type bulkError struct {
	text  string
	cause error
}

func (e *bulkError) Error() string { return e.text }
func (e *bulkError) Unwrap() error { return e.cause }

// parse turns lines into chunks.
func (b *bulk) parse(ctx context.Context, in io.Reader, chunks chan<- *chunk) error {
	lines := newLineReader(in, b.maxPayload+lineSlack)
	c := &chunk{}
	flush := func() bool {
		c.end = lines.offset
		select {
		case chunks <- c:
			c = &chunk{}
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		if lines.starved() && !c.empty() {
			// Nothing is at hand to be parsed: if Redis has nothing to do either,
			// it gets what there is.
			c.end = lines.offset
			select {
			case chunks <- c:
				c = &chunk{}
			default:
			}
		}
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			flush()
			return nil
		case errors.Is(err, errLongLine):
			c.reject(lines.number, fmt.Sprintf("is longer than %d bytes, which no line with a payload of at most %d bytes is (MAX_PAYLOAD_BYTES)", lines.limit, b.maxPayload))
		case err != nil:
			return fmt.Errorf("read line %d: %w", lines.number+1, err)
		case len(line) == 0:
			continue
		default:
			b.add(c, lines.number, line)
		}
		if c.full() && !flush() {
			return nil
		}
	}
}

// add parses a line into the chunk.
func (b *bulk) add(c *chunk, number int, line []byte) {
	c.size += len(line)
	spec := &jobs.Spec{Destination: b.destination}
	if err := parseJobLine(c.keep(line), spec); err != nil {
		c.reject(number, err.Error())
		return
	}
	c.specs = append(c.specs, spec)
	c.lines = append(c.lines, number)
}

// send enqueues a chunk and returns the line up to which all are answered.
func (b *bulk) send(ctx context.Context, c *chunk, result *bulkResult) (done int, err error) {
	done = c.last()
	result.Rejected = append(result.Rejected, c.rejected...)
	// Once begun, it is better finished than left unknown.
	answers, err := b.client.EnqueueMany(context.WithoutCancel(ctx), c.specs)
	for i, a := range answers {
		switch {
		case a.Job != nil && a.Job.Duplicate:
			result.Duplicates++
		case a.Job != nil:
			result.Accepted++
		case a.Err != nil && (err == nil || errors.Is(a.Err, jobs.ErrInvalid)):
			result.Rejected = append(result.Rejected, rejection{Line: c.lines[i], Error: clean(problem(a.Err))})
		default:
			done = min(done, c.lines[i]-1)
		}
	}
	b.progress.reached(c.end, result.lines())
	return done, err
}
