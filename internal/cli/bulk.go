package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// lineSlack is how much longer than its payload a line may be: path, query, headers and names.
	lineSlack = 64 << 10
	// mostLines and mostBytes bound what is sent to Redis at once.
	mostLines = 1000
	mostBytes = 4 << 20
)

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

// bulk enqueues a file of jobs, one a line.
type bulk struct {
	client      *jobs.Client
	maxPayload  int
	destination string            // of lines that name none
	retry       *jobs.RetryPolicy // likewise
	batch       string            // of lines that name none
	size        int64             // of the file in bytes, 0 if unknown
	progress    *bar

	result       bulkResult
	answered     int             // number of the line up to which all are in the result
	destinations map[string]bool // that accepted jobs are for
}

// bulkLine is a line of the file.
type bulkLine struct {
	number int
	spec   *jobs.Spec // nil if the line is empty
	wrong  error      // why it is not
	end    int64      // offset in the file
}

// bulkError is an enqueue of a file that ended early. The cause is what Redis
// said, nil if it was not Redis.
type bulkError struct {
	text  string
	cause error
}

func (e *bulkError) Error() string { return e.text }
func (e *bulkError) Unwrap() error { return e.cause }

// run reads to the end of in. The error says what stopped it earlier; b.result counts what was done until then.
//
// Lines are read and parsed while earlier ones are on their way, which keep the order of the file. When ctx ends, the
// ones on their way are finished.
func (b *bulk) run(ctx context.Context, in io.Reader) error {
	b.result.Rejected, b.destinations = []rejection{}, map[string]bool{}
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	parts := make(chan []bulkLine)
	var failed error // once parts is closed
	// A read from a pipe cannot be interrupted: after a cancel this may outlive
	// run, but not the process, which is about to end.
	go func() {
		defer close(parts)
		failed = b.read(stop, in, parts)
	}()
	for {
		select {
		case part, more := <-parts:
			switch {
			case !more && failed != nil:
				return b.stopped(b.answered, failed.Error(), nil)
			case !more:
				return nil
			}
			if err := b.send(ctx, part); err != nil {
				return b.stopped(part[len(part)-1].number, problem(err), err)
			}
		case <-ctx.Done():
			return b.stopped(b.answered, errInterrupted.Error(), nil)
		}
	}
}

// errInterrupted is returned if the end of the file was not reached.
var errInterrupted = errors.New("interrupted")

// stopped says how far it came and how to go on: lines after the answered ones, up to unknown, may be enqueued.
func (b *bulk) stopped(unknown int, why string, cause error) error {
	text := fmt.Sprintf("stopped (%s); accepted so far: %s; go on with: tail -n +%d FILE | tidegate enqueue --file -",
		why, plural(b.result.Accepted, "job", "jobs"), b.answered+1)
	switch {
	case unknown == b.answered+1:
		text += fmt.Sprintf("; line %d may be enqueued already: it can be repeated safely if it has an id", unknown)
	case unknown > b.answered:
		text += fmt.Sprintf("; lines %d to %d may be enqueued already: only those with an id can be repeated safely", b.answered+1, unknown)
	}
	return &bulkError{text: text, cause: cause}
}

// read reads lines and passes them on, parsed, until in ends or ctx does.
func (b *bulk) read(ctx context.Context, in io.Reader, out chan<- []bulkLine) error {
	lines := jobjson.NewLines(in, b.maxPayload+lineSlack)
	var part []bulkLine
	for size := 0; ; {
		text, err := lines.Next()
		line := bulkLine{number: lines.Number(), end: lines.Offset()}
		failed := err != nil && !errors.Is(err, jobjson.ErrLongLine)
		switch {
		case failed:
		case err != nil:
			line.wrong = fmt.Errorf("is longer than %d bytes, which no line with a payload of at most %d bytes is (MAX_PAYLOAD_BYTES)", b.maxPayload+lineSlack, b.maxPayload)
		case len(text) > 0:
			line.spec = &jobs.Spec{Destination: b.destination, Batch: b.batch}
			if line.wrong = jobjson.Parse(bytes.Clone(text), line.spec); line.spec.Retry == nil {
				line.spec.Retry = b.retry
			}
		}
		if !failed {
			part = append(part, line)
			size += len(text)
		}
		// What was read goes on its way before more is waited for.
		if len(part) > 0 && (failed || lines.Starved() || len(part) == mostLines || size >= mostBytes) {
			select {
			case out <- part:
				part, size = nil, 0
			case <-ctx.Done():
				return errInterrupted
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case failed:
			return fmt.Errorf("read line %d: %w", lines.Number()+1, err)
		}
	}
}

// send enqueues lines and adds them to the result.
func (b *bulk) send(ctx context.Context, part []bulkLine) error {
	var specs []*jobs.Spec
	var numbers []int
	for _, line := range part {
		switch {
		case line.wrong != nil:
			b.reject(line.number, line.wrong.Error())
		case line.spec != nil: // else it is empty
			specs = append(specs, line.spec)
			numbers = append(numbers, line.number)
		}
	}
	last := part[len(part)-1]
	done := last.number
	// Once begun, it is better finished than left unknown.
	answers, err := b.client.EnqueueMany(context.WithoutCancel(ctx), specs)
	for i, a := range answers {
		switch {
		case a.Job != nil && a.Job.Duplicate:
			b.result.Duplicates++
		case a.Job != nil:
			b.result.Accepted++
		case a.Err != nil && (err == nil || jobs.Refused(a.Err)):
			b.reject(numbers[i], problem(a.Err))
			continue
		default:
			done = min(done, numbers[i]-1)
			continue
		}
		b.destinations[a.Job.Destination] = true
	}
	slices.SortFunc(b.result.Rejected, func(x, y rejection) int { return cmp.Compare(x.Line, y.Line) })
	b.answered = done
	b.progress.show(last.end, b.size, fmt.Sprintf("%d lines", done))
	return err
}

func (b *bulk) reject(line int, problem string) {
	b.result.Rejected = append(b.result.Rejected, rejection{Line: line, Error: text.OneLine(problem)})
}
