package api

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
)

// enqueueArray enqueues an array of jobs. A body that is not a JSON array, or too long, enqueues
// no job. In a valid array each job is validated by itself.
func (a *api) enqueueArray(w http.ResponseWriter, r *http.Request, data []byte) {
	elements, p := split(data)
	if p != nil {
		p.write(w)
		return
	}
	if len(data) <= a.mostJobBytes() { // a longer one has it
		leave := a.bodies.enter(r.Context(), int64(len(elements)*jobMemory))
		if leave == nil {
			errBusy().write(w)
			return
		}
		defer leave()
	}
	// The enqueue is completed even if the client disconnects.
	stream := a.newLineStream(context.WithoutCancel(r.Context()))
	stream.all, stream.many.items = true, make([]EnqueuedItem, 0, len(elements))
	stream.lines = &arraySource{rest: elements, longest: stream.longest}
	stream.run(w)
}

// arraySource is an array as a [lineSource].
type arraySource struct {
	rest    [][]byte
	longest int // bytes of an element
}

// Next implements lineSource.
func (s *arraySource) Next() ([]byte, error) {
	if len(s.rest) == 0 {
		return nil, io.EOF
	}
	next := s.rest[0]
	s.rest = s.rest[1:]
	if len(next) > s.longest {
		return nil, jobjson.ErrLongLine
	}
	return next, nil
}

// Number implements lineSource.
func (*arraySource) Number() int { return 0 }

// Starved implements lineSource.
func (*arraySource) Starved() bool { return false }

// place is the location of a job of an array.
func place(i int) at { return at("body[" + strconv.Itoa(i) + "]") }

// split returns the elements of an array as parts of data.
func split(data []byte) ([][]byte, *Problem) {
	elements, ok, err := jobjson.Elements(data, mostItems)
	switch {
	case err != nil:
		return nil, syntaxProblem(errors.New("is not valid JSON: " + err.Error()))
	case !ok:
		return nil, newProblem(http.StatusRequestEntityTooLarge, "the array has more than %d jobs, which is the most that is accepted; send several, or lines (%s), of which there may be any number", mostItems, ndjsonType)
	}
	return elements, nil
}

// many counts the results of an enqueue of many.
type many struct {
	items                          []EnqueuedItem
	accepted, duplicates, rejected int
	wordings                       int             // errors of all jobs
	destinations                   map[string]bool // of the jobs that were accepted
}

// count counts a job. Its errors are shortened once the request has had mostWordings.
func (m *many) count(item *EnqueuedItem) {
	switch {
	case item.Errors != nil:
		m.rejected++
		if m.wordings += len(item.Errors); m.wordings > mostWordings {
			item.Errors = shortened(item.Errors)
		}
	case item.Duplicate:
		m.duplicates++
	default:
		m.accepted++
	}
}

// shortened returns the first error, with the number of the others.
func shortened(errs []ProblemField) []ProblemField {
	first := errs[0]
	first.Message = text.CutBytes(first.Message, longestShortened)
	if more := len(errs) - 1; more > 0 {
		first.Message += " (errors of this job that are not listed: " + strconv.Itoa(more) + ")"
	}
	return []ProblemField{first}
}

func (m *many) progress(answered int) *Progress {
	return &Progress{Answered: answered, Accepted: m.accepted, Duplicates: m.duplicates, Rejected: m.rejected}
}

// writeMany answers an enqueue of many: 201 if a job was enqueued, 422 if all jobs were refused,
// otherwise 200.
func (a *api) writeMany(ctx context.Context, w http.ResponseWriter, m *many) {
	status := http.StatusOK
	a.warnUnserved(ctx, w.Header(), slices.Sorted(maps.Keys(m.destinations))...)
	switch {
	case m.accepted > 0:
		status = http.StatusCreated
	case m.rejected > 0 && m.duplicates == 0:
		p := newProblem(http.StatusUnprocessableEntity, "none of the jobs can be accepted; items says what is wrong with each")
		for _, item := range m.items {
			p.Errors = append(p.Errors, item.Errors...)
			if len(p.Errors) >= mostWordings {
				break
			}
		}
		for i := range m.items {
			if item := &m.items[i]; m.wordings > mostTwice && len(item.Errors) > 1 {
				item.Errors = shortened(item.Errors)
			}
		}
		p.Progress, p.Items = m.progress(m.rejected), m.items
		p.write(w)
		return
	}
	a.writeJSON(ctx, w, status, Enqueued{Accepted: m.accepted, Duplicates: m.duplicates, Rejected: m.rejected, Items: m.items})
}
