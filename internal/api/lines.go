package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/tidegate/tidegate/internal/jobjson"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// mostRejections is how many refused jobs an answer tells of.
	mostRejections = 1000
	// Bounds of what is sent to Redis at once.
	chunkJobs  = 2000
	chunkBytes = 1 << 20
)

// streamBytes is the memory of one request with lines: chunks that are read, wait and
// are sent, and what is made of them.
func (a *api) streamBytes() int64 { return 3 * int64(2*chunkBytes+a.mostJobBytes()) }

// lineChunk is a part of the lines on its way to Redis.
type lineChunk struct {
	specs   []*jobs.Spec
	places  []linePlace
	refused []EnqueuedItem
	data    []byte
	last    int // index behind its last job
}

// linePlace is where a job was.
type linePlace struct{ index, line int }

func (c *lineChunk) full(longest int) bool {
	return len(c.specs)+len(c.refused) >= chunkJobs || len(c.data)+longest > cap(c.data)
}

func (c *lineChunk) empty() bool { return len(c.specs)+len(c.refused) == 0 }

// lineStream enqueues the lines of one request.
type lineStream struct {
	api      *api
	ctx      context.Context //nolint:containedctx // it lives as long as the request
	lines    *jobjson.Lines
	longest  int
	chunks   chan *lineChunk
	spare    chan *lineChunk
	index    int
	failed   chan struct{} // closed after err was set
	err      error         // of sending
	many     many          // of those that were answered
	results  *results      // if each is told of while more come in
	answered int           // up to this index for certain
}

// enqueueLines takes jobs, one a line, however many there are. While a chunk of them
// is on its way to Redis the next is read; chunks follow each other, so that jobs are
// enqueued in the order of the lines.
func (a *api) enqueueLines(w http.ResponseWriter, r *http.Request) {
	held := a.streamBytes()
	if !a.memory.TryAcquire(held) {
		errBusy().write(w)
		return
	}
	defer a.memory.Release(held)
	longest := a.mostJobBytes()
	s := &lineStream{
		api: a, ctx: r.Context(), lines: jobjson.NewLines(r.Body, longest), longest: longest,
		chunks: make(chan *lineChunk), spare: make(chan *lineChunk, 3), failed: make(chan struct{}),
		many: many{items: []EnqueuedItem{}},
	}
	if wantsLines(r) {
		s.results = newResults(w)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.send()
	}()
	err := s.read()
	close(s.chunks)
	<-done
	if s.err != nil {
		err = s.err
	}
	var p *Problem
	if err != nil {
		p = s.problem(err)
		p.Progress = s.many.progress(s.answered)
	}
	switch {
	case s.results != nil:
		s.results.end(s.many.progress(s.answered), p)
		return
	case p != nil:
		p.write(w)
		return
	}
	a.writeMany(r.Context(), w, &s.many, s.many.items)
}

// problem says why it ended early.
func (s *lineStream) problem(err error) *Problem {
	if reading, ok := errors.AsType[*readError](err); ok {
		return bodyProblem(reading.err, 0)
	}
	if left, ok := errors.AsType[*leftError](err); ok {
		return bodyProblem(left.err, 0)
	}
	return s.api.problem(s.ctx, "body", err)
}

// readError is one of reading the body.
type readError struct{ err error }

func (e *readError) Error() string { return fmt.Sprintf("read the body: %v", e.err) }
func (e *readError) Unwrap() error { return e.err }

// read hands over what it reads until the body ends or sending has failed.
func (s *lineStream) read() error {
	c := s.chunk()
	for {
		if c.full(s.longest) || s.lines.Starved() && !c.empty() {
			if !s.hand(c) {
				return nil
			}
			c = s.chunk()
		}
		line, err := s.lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			s.hand(c)
			return nil
		case errors.Is(err, jobjson.ErrLongLine):
			s.refuse(c, []ProblemField{{Location: place(s.index).of(""), Message: "is longer than " + strconv.Itoa(s.longest) + " bytes, which no job that is accepted is (MAX_PAYLOAD_BYTES)"}})
		case err != nil:
			s.hand(c)
			return &readError{err}
		case len(line) > 0:
			s.take(c, line)
		}
	}
}

// take adds a job to a chunk.
func (s *lineStream) take(c *lineChunk, line []byte) {
	from := len(c.data)
	c.data = append(c.data, line...)
	spec := &jobs.Spec{}
	if err := s.api.parse(c.data[from:len(c.data):len(c.data)], spec); err != nil {
		s.refuse(c, place(s.index).fields(err))
		return
	}
	c.specs = append(c.specs, spec)
	c.places = append(c.places, linePlace{s.index, s.lines.Number()})
	s.index++
}

func (s *lineStream) refuse(c *lineChunk, errs []ProblemField) {
	c.refused = append(c.refused, EnqueuedItem{Index: s.index, Line: s.lines.Number(), Errors: errs})
	s.index++
}

// chunk is an empty one.
func (s *lineStream) chunk() *lineChunk {
	select {
	case c := <-s.spare:
		*c = lineChunk{specs: c.specs[:0], places: c.places[:0], refused: c.refused[:0], data: c.data[:0]}
		return c
	default:
		return &lineChunk{data: make([]byte, 0, chunkBytes+s.longest)}
	}
}

// hand hands a chunk over to be sent; false if sending has failed.
func (s *lineStream) hand(c *lineChunk) bool {
	c.last = s.index
	select {
	case <-s.failed:
		return false
	default:
	}
	select {
	case s.chunks <- c:
		return true
	case <-s.failed:
		return false
	}
}

// send enqueues chunks until there are no more, or Redis takes none.
func (s *lineStream) send() {
	for c := range s.chunks {
		if err := s.enqueue(c); err != nil {
			s.err = err
			close(s.failed)
			return
		}
		clear(c.specs)
		select {
		case s.spare <- c:
		default:
		}
	}
}

// enqueue sends a chunk and counts what became of it.
func (s *lineStream) enqueue(c *lineChunk) error {
	ctx, cancel := begun(s.ctx)
	defer cancel()
	results, err := s.api.client.EnqueueMany(ctx, c.specs)
	answered := c.last
	items := c.refused
	for i, result := range results {
		item := EnqueuedItem{Index: c.places[i].index, Line: c.places[i].line}
		switch {
		case result.Job != nil:
			item.ID, item.Status, item.Duplicate = result.Job.ID, string(result.Job.Status), result.Job.Duplicate
		case result.Err != nil && errors.Is(result.Err, jobs.ErrInvalid):
			item.Errors = place(item.Index).fields(result.Err)
		default:
			answered = min(answered, item.Index)
			if err == nil {
				err = result.Err
			}
			continue
		}
		items = append(items, item)
	}
	sortItems(items)
	for len(items) > 0 && items[len(items)-1].Index >= answered {
		items = items[:len(items)-1]
	}
	c.refused = items[:0] // the memory is used again
	s.answered = answered
	for i := range items {
		s.many.count(&items[i])
		if s.results == nil && items[i].Errors != nil && len(s.many.items) < mostRejections {
			s.many.items = append(s.many.items, items[i])
		}
	}
	if s.results != nil {
		if told := s.results.tell(items); err == nil {
			err = told
		}
	}
	return err
}

// sortItems orders items as they came: those that could not be read are known before
// those that Redis was asked about.
func sortItems(items []EnqueuedItem) {
	slices.SortFunc(items, func(a, b EnqueuedItem) int { return a.Index - b.Index })
}
