package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// mostRejections bounds the refused jobs in the response to lines.
	mostRejections = 1000
	// mostWordings bounds the errors of a response; each job that is refused after them has
	// only its first error and the number of the others.
	mostWordings = 1000
	// mostTwice is how many errors a response has twice, if all jobs are refused: in errors, and with each job. If there are
	// more, each job has its first error.
	mostTwice = 100
	// longestShortened bounds the text of that first error, in bytes.
	longestShortened = 160
	// Bounds of a chunk: jobs, and their approximate memory. A chunk takes room in steps of chunkStep, and keeps it
	// while the sender pauses in a line.
	chunkJobs   = 2000
	chunkMemory = 4 << 20
	chunkStep   = 64 << 10
	// jobMemory is the approximate memory of a job besides its JSON, with its item in the response; entryMemory
	// of each of its headers and parents, with its error.
	jobMemory   = 1 << 10
	entryMemory = 128
)

// lineChunk is the jobs of one call to Redis.
type lineChunk struct {
	specs   []*jobs.Spec
	places  []linePlace
	refused []EnqueuedItem
	memory  int
	room    int      // for its memory
	leaves  []func() // give it back
	last    int      // index after its last job
}

// linePlace is the location of a job.
type linePlace struct{ index, line int }

func (c *lineChunk) full() bool {
	return len(c.specs)+len(c.refused) >= chunkJobs || c.memory >= chunkMemory
}

// leave gives back its room.
func (c *lineChunk) leave() {
	for _, leave := range c.leaves {
		leave()
	}
	c.leaves = nil
}

// memoryOf is the approximate memory of the job of a line of n bytes: its payload, the data sent to Redis, the other
// fields and their copies, and the errors.
func memoryOf(n int, spec *jobs.Spec) int {
	entries := len(spec.Request.Headers) + len(spec.After)
	if spec.Retry != nil {
		entries += len(spec.Retry.RetryOn)
	}
	return 4*n - 2*len(spec.Payload) + jobMemory + entries*entryMemory
}

// memory is the approximate memory of an item and its part of the response.
func (i *EnqueuedItem) memory() int {
	n := 256
	for _, e := range i.Errors {
		n += 64 + 2*(len(e.Location)+len(e.Message))
	}
	return n
}

// lineSource is the source of a stream of jobs: lines, or the elements of an array.
type lineSource interface {
	// Next returns the next job, valid until the next call. Errors: io.EOF after the last job;
	// jobjson.ErrLongLine, after which Next may be called again; others end the stream.
	Next() ([]byte, error)
	// Number is the number of the last line, 0 in an array.
	Number() int
	// Starved reports whether Next would probably block.
	Starved() bool
}

// lineStream enqueues the lines of one request.
type lineStream struct {
	api     *api
	ctx     context.Context //nolint:containedctx // of the request
	id      access.Identity
	lines   lineSource
	longest int

	leaveLine func() // gives back the room of a long line; nil without it

	c        *lineChunk // being filled
	chunks   chan *lineChunk
	index    int
	failed   chan struct{} // closed after err was set
	err      error         // of sending
	many     many          // of the jobs that Redis answered
	all      bool          // the response has an item for each job
	results  *results      // nil unless results are streamed
	answered int           // all jobs up to this index were answered
	foreseen bool          // the first jobs have their ETA
}

// enqueueLines enqueues any number of jobs, one a line. While a chunk is sent to Redis the next
// is read; chunks are sent one at a time, so that jobs are enqueued in the order of the lines.
func (a *api) enqueueLines(w http.ResponseWriter, r *http.Request) {
	s := a.newLineStream(r.Context())
	lines := jobjson.NewLines(r.Body, s.longest)
	lines.Grow = s.growLine
	s.lines = lines
	defer func() { _ = s.growLine(0) }()
	if wantsLines(r) {
		s.results = newResults(w)
	}
	s.run(w)
}

func (a *api) newLineStream(ctx context.Context) *lineStream {
	id, _ := access.From(ctx)
	return &lineStream{
		api: a, ctx: ctx, id: id, longest: a.mostJobBytes(), c: &lineChunk{},
		chunks: make(chan *lineChunk), failed: make(chan struct{}),
		many: many{items: []EnqueuedItem{}, destinations: map[string]bool{}},
	}
}

// run reads and sends, and answers the request.
func (s *lineStream) run(w http.ResponseWriter) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.send()
	}()
	err := s.read()
	close(s.chunks)
	<-done
	s.c.leave()
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
	s.api.writeMany(s.ctx, w, &s.many)
}

// problem is the reason why the stream ended early.
func (s *lineStream) problem(err error) *Problem {
	if body, ok := errors.AsType[*bodyError](err); ok {
		return bodyProblem(body.err, 0)
	}
	return s.api.problem(s.ctx, "body", err)
}

// bodyError is an error of reading the body, or of writing results to a caller that has disconnected.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// errSending ends reading after sending has failed; lineStream.err is the cause.
var errSending = errors.New("sending has failed")

// read reads jobs and submits chunks until the body ends or sending has failed.
func (s *lineStream) read() error {
	for {
		if s.c.full() || s.lines.Starved() {
			if err := s.submit(); err != nil {
				return err
			}
		}
		line, err := s.lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return s.submit()
		case errors.Is(err, jobjson.ErrLongLine):
			err = s.refuse([]ProblemField{{Location: place(s.index).of(""), Message: "is longer than " + strconv.Itoa(s.longest) + " bytes, which no job that is accepted is (MAX_PAYLOAD_BYTES)"}})
		case err != nil:
			_ = s.submit() // the error of reading is reported
			if _, ours := errors.AsType[*Problem](err); ours || errors.Is(err, errSending) {
				return err
			}
			return &bodyError{err}
		case len(line) > 0:
			err = s.take(line)
		}
		if err != nil {
			return err
		}
	}
}

// take adds a job to the chunk.
func (s *lineStream) take(line []byte) error {
	spec := &jobs.Spec{}
	err := s.api.parse(line, spec)
	if err == nil {
		err = s.api.claim(s.id, spec)
	}
	if err != nil {
		return s.refuse(place(s.index).fields(s.ctx, err))
	}
	if err := s.grow(memoryOf(len(line), spec)); err != nil {
		return err
	}
	spec.Payload = bytes.Clone(spec.Payload)
	s.c.specs = append(s.c.specs, spec)
	s.c.places = append(s.c.places, linePlace{s.index, s.lines.Number()})
	s.index++
	return nil
}

func (s *lineStream) refuse(errs []ProblemField) error {
	item := EnqueuedItem{Index: s.index, Line: s.lines.Number(), Errors: errs}
	if err := s.grow(item.memory()); err != nil {
		return err
	}
	s.c.refused = append(s.c.refused, item)
	s.index++
	return nil
}

// grow takes room for the memory of a job.
func (s *lineStream) grow(n int) error {
	if more := s.c.memory + n - s.c.room; more > 0 && !s.all { // an array has room
		more = max(more, chunkStep)
		leave, err := s.enter(more)
		if err != nil {
			return err
		}
		s.c.leaves = append(s.c.leaves, leave)
		s.c.room += more
	}
	s.c.memory += n
	return nil
}

// growLine takes room for n bytes of a long line, in place of the room that the line has; 0 only gives this back.
func (s *lineStream) growLine(n int) (err error) {
	if s.leaveLine != nil {
		s.leaveLine()
		s.leaveLine = nil
	}
	if n > 0 {
		s.leaveLine, err = s.enter(n)
	}
	return err
}

// enter takes room for n bytes. If there is none it submits the chunk, which gives back its own, and waits.
func (s *lineStream) enter(n int) (leave func(), err error) {
	if leave = s.api.bodies.try(s.ctx, int64(n)); leave != nil {
		return leave, nil
	}
	if err := s.submit(); err != nil {
		return nil, err
	}
	if leave = s.api.bodies.enter(s.ctx, int64(n)); leave == nil {
		return nil, errBusy()
	}
	return leave, nil
}

// submit submits the chunk to be sent, unless it is empty, and begins another.
func (s *lineStream) submit() error {
	s.c.last = s.index
	if len(s.c.specs)+len(s.c.refused) == 0 {
		select {
		case <-s.failed:
			return errSending
		default:
			return nil
		}
	}
	select {
	case s.chunks <- s.c:
		s.c = &lineChunk{}
		return nil
	case <-s.failed:
		return errSending
	}
}

// send enqueues chunks until the last one or an error.
func (s *lineStream) send() {
	for c := range s.chunks {
		err := s.enqueue(c)
		c.leave()
		if err != nil {
			s.err = err
			close(s.failed)
			return
		}
	}
}

// enqueue sends a chunk and counts the results.
func (s *lineStream) enqueue(c *lineChunk) error {
	ctx, cancel := begun(s.ctx)
	defer cancel()
	room, p := s.api.takeQuota(ctx, c.specs, 0)
	results, err := s.api.client.EnqueueMany(ctx, c.specs[:room])
	answered := c.last
	if p != nil {
		answered = c.places[room].index
		if err == nil {
			err = p
		}
	}
	items := c.refused
	etas := s.etas(ctx, results)
	for i, result := range results {
		item := EnqueuedItem{Index: c.places[i].index, Line: c.places[i].line}
		switch {
		case result.Job != nil && taken(s.id, result.Job):
			item.Errors = []ProblemField{{place(item.Index).of("id"), idTaken}}
		case result.Job != nil:
			s.many.destinations[result.Job.Destination] = true
			item.ID, item.Status, item.Duplicate, item.Replaced = result.Job.ID, string(result.Job.Status), result.Job.Duplicate, result.Job.Replaced
			if i < len(etas) {
				item.ETA = etas[i]
			}
		case jobs.Refused(result.Err):
			s.api.ops.Return(ctx, c.specs[i], result.Err)
			item.Errors = place(item.Index).fields(ctx, result.Err)
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
	s.answered = answered
	for i := range items {
		s.many.count(&items[i])
		if s.all || s.results == nil && items[i].Errors != nil && len(s.many.items) < mostRejections {
			s.many.items = append(s.many.items, items[i])
		}
	}
	if s.results != nil {
		if !s.results.begun {
			s.api.warnUnserved(ctx, s.results.w.Header(), slices.Sorted(maps.Keys(s.many.destinations))...)
		}
		if writeErr := s.results.write(items); err == nil {
			err = writeErr
		}
	}
	return err
}

// etas says when the first jobs start, if the response has them; after an error it does not.
func (s *lineStream) etas(ctx context.Context, results []jobs.Result) []*jobs.ETA {
	if s.foreseen || !s.all && s.results == nil {
		return nil
	}
	s.foreseen = true
	list := make([]*jobs.Job, len(results))
	for i, r := range results {
		if r.Job != nil && !taken(s.id, r.Job) {
			list[i] = r.Job
		}
	}
	etas, _ := s.api.client.ETAs(ctx, list)
	return etas
}

// sortItems restores the order of the request, because the items with validation errors are added
// before the items from Redis.
func sortItems(items []EnqueuedItem) {
	slices.SortFunc(items, func(a, b EnqueuedItem) int { return a.Index - b.Index })
}
