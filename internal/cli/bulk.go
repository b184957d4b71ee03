package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tidegate/tidegate/internal/jobjson"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
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

// bulk enqueues a file of jobs, one a line.
type bulk struct {
	client      *jobs.Client
	maxPayload  int
	destination string // of lines that name none
	batch       string // of lines that name none
	size        int64  // of the file in bytes, 0 if unknown
	progress    *bar

	destinations map[string]bool // that accepted jobs are for
}

// run reads to the end of in. The error says what stopped it earlier; the result
// counts what was done until then.
//
// While one chunk is on its way the next is read and parsed, and chunks follow
// each other, so that jobs are enqueued in the order of the file. When ctx ends,
// the chunk on its way is finished.
func (b *bulk) run(ctx context.Context, in io.Reader) (*bulkResult, error) {
	result := &bulkResult{Rejected: []rejection{}}
	defer func() {
		slices.SortFunc(result.Rejected, func(x, y rejection) int { return cmp.Compare(x.Line, y.Line) })
	}()
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	chunks := make(chan *chunk)
	var readErr error // once chunks is closed
	// A read from a pipe cannot be interrupted: after a cancel this may outlive
	// run, but not the process, which is about to end.
	go func() {
		defer close(chunks)
		readErr = b.parse(stop, in, chunks)
	}()
	last := 0 // line up to which all have been answered
	for {
		select {
		case c, more := <-chunks:
			switch {
			case !more && readErr != nil:
				return result, &bulkError{text: stopped(result, last, last, readErr.Error())}
			case !more:
				return result, nil
			}
			done, err := b.send(ctx, c, result)
			if err != nil {
				return result, &bulkError{text: stopped(result, done, c.last(), problem(err)), cause: err}
			}
			last = done
		case <-ctx.Done():
			return result, &bulkError{text: stopped(result, last, last, "interrupted")}
		}
	}
}

// stopped returns how far it came and how to go on: all lines to done are answered,
// lines after it, up to unknown, may be enqueued.
func stopped(r *bulkResult, done, unknown int, why string) string {
	text := fmt.Sprintf("stopped (%s); accepted so far: %s; go on with: tail -n +%d FILE | tidegate enqueue --file -",
		why, plural(r.Accepted, "job", "jobs"), done+1)
	switch {
	case unknown == done+1:
		text += fmt.Sprintf("; line %d may be enqueued already: it can be repeated safely if it has an id", unknown)
	case unknown > done:
		text += fmt.Sprintf("; lines %d to %d may be enqueued already: only those with an id can be repeated safely", done+1, unknown)
	}
	return text
}

// bulkError is an enqueue of a file that ended early. The cause is what Redis
// said, nil if it was not Redis.
type bulkError struct {
	text  string
	cause error
}

func (e *bulkError) Error() string { return e.text }
func (e *bulkError) Unwrap() error { return e.cause }

// errInterrupted is returned if the end of the file was not reached.
var errInterrupted = errors.New("interrupted")

// parse reads lines and passes them on, parsed, until in ends or ctx does.
func (b *bulk) parse(ctx context.Context, in io.Reader, chunks chan<- *chunk) error {
	lines := jobjson.NewLines(in, b.maxPayload+lineSlack)
	c := &chunk{}
	flush := func() bool {
		if c.empty() {
			return true
		}
		c.end = lines.Offset()
		select {
		case chunks <- c:
			c = &chunk{}
			return true
		case <-ctx.Done():
			return false
		}
	}
	for {
		// What was read goes on its way before more is waited for.
		if (c.full() || lines.Starved()) && !flush() {
			return errInterrupted
		}
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			if !flush() {
				return errInterrupted
			}
			return nil
		case errors.Is(err, jobjson.ErrLongLine):
			c.reject(lines.Number(), fmt.Sprintf("is longer than %d bytes, which no line with a payload of at most %d bytes is (MAX_PAYLOAD_BYTES)", b.maxPayload+lineSlack, b.maxPayload))
		case err != nil:
			flush()
			return fmt.Errorf("read line %d: %w", lines.Number()+1, err)
		case len(line) > 0:
			spec := &jobs.Spec{Destination: b.destination, Batch: b.batch}
			if err := jobjson.Parse(bytes.Clone(line), spec); err != nil {
				c.reject(lines.Number(), err.Error())
			} else {
				c.add(lines.Number(), spec, len(line))
			}
		}
	}
}

// send enqueues a chunk and returns the line up to which all are answered.
func (b *bulk) send(ctx context.Context, c *chunk, result *bulkResult) (done int, err error) {
	done = c.last()
	result.Rejected = append(result.Rejected, c.rejected...)
	// Once begun, it is better finished than left unknown.
	answers, err := b.client.EnqueueMany(context.WithoutCancel(ctx), c.specs)
	if b.destinations == nil {
		b.destinations = map[string]bool{}
	}
	for i, a := range answers {
		if a.Job != nil {
			b.destinations[a.Job.Destination] = true
		}
		switch {
		case a.Job != nil && a.Job.Duplicate:
			result.Duplicates++
		case a.Job != nil:
			result.Accepted++
		case a.Err != nil && (err == nil || jobs.Refused(a.Err)):
			result.Rejected = append(result.Rejected, rejection{Line: c.lines[i], Error: text.OneLine(problem(a.Err))})
		default:
			done = min(done, c.lines[i]-1)
		}
	}
	b.progress.show(c.end, b.size, fmt.Sprintf("%d lines", result.lines()))
	return done, err
}

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
