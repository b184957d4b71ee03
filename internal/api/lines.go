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
	// streamBytes is the memory of one request with lines: chunks that are read, wait
	// and are sent, and buffers.
	streamBytes = 6 << 20
)

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
	answered int           // up to this index for certain
}

// enqueueLines takes jobs, one a line, however many there are. While a chunk of them
// is on its way to Redis the next is read; chunks follow each other, so that jobs are
// enqueued in the order of the lines.
func (a *api) enqueueLines(w http.ResponseWriter, r *http.Request) {
	if !a.memory.TryAcquire(streamBytes) {
		errBusy().write(w)
		return
	}
	defer a.memory.Release(streamBytes)
	longest := a.mostJobBytes()
	s := &lineStream{
		api: a, ctx: r.Context(), lines: jobjson.NewLines(r.Body, longest), longest: longest,
		chunks: make(chan *lineChunk), spare: make(chan *lineChunk, 3), failed: make(chan struct{}),
		many: many{items: []EnqueuedItem{}},
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
	if err != nil {
		p := s.problem(err)
		p.Progress = s.many.progress(s.answered)
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
	accepted := make([]linePlace, 0, len(results))
	duplicates := make([]linePlace, 0)
	for i, result := range results {
		at := c.places[i]
		switch {
		case result.Job != nil && result.Job.Duplicate:
			duplicates = append(duplicates, at)
		case result.Job != nil:
			accepted = append(accepted, at)
		case result.Err != nil && errors.Is(result.Err, jobs.ErrInvalid):
			items = append(items, EnqueuedItem{Index: at.index, Line: at.line, Errors: place(at.index).fields(result.Err)})
		default:
			answered = min(answered, at.index)
			if err == nil {
				err = result.Err
			}
		}
	}
	s.answered = answered
	s.many.add(items, accepted, duplicates, answered)
	return err
}

// add counts those before the index up to which all is known.
func (m *many) add(refused []EnqueuedItem, accepted, duplicates []linePlace, answered int) {
	for _, p := range accepted {
		if p.index < answered {
			m.accepted++
		}
	}
	for _, p := range duplicates {
		if p.index < answered {
			m.duplicates++
		}
	}
	sortItems(refused)
	for _, item := range refused {
		if item.Index >= answered {
			continue
		}
		m.rejected++
		if len(m.items) < mostRejections {
			m.items = append(m.items, item)
		}
	}
}

// sortItems orders what was refused: what could not be read comes before what Redis
// was asked about.
func sortItems(items []EnqueuedItem) {
	slices.SortFunc(items, func(a, b EnqueuedItem) int { return a.Index - b.Index })
}
