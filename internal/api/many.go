package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/tidegate/tidegate/internal/jobjson"
	"github.com/tidegate/tidegate/jobs"
)

// enqueueArray takes an array of jobs. It is taken as a whole or not at all as far as
// its form and its length go: what is no JSON array, or too long a one, enqueues
// nothing. Within one each job is judged by itself.
func (a *api) enqueueArray(w http.ResponseWriter, r *http.Request, data []byte, held *account) {
	elements, p := split(data)
	if p == nil && !held.try(int64(len(elements))*jobMemory) {
		p = errBusy()
	}
	if p != nil {
		p.write(w)
		return
	}
	ctx, cancel := begun(r.Context())
	defer cancel()
	many := newMany(len(elements))
	specs := make([]*jobs.Spec, 0, len(elements))
	places := make([]int, 0, len(elements))
	for i, element := range elements {
		many.items = append(many.items, EnqueuedItem{Index: i})
		spec := &jobs.Spec{}
		if len(element) > a.mostJobBytes() {
			many.items[i].Errors = []ProblemField{{Location: place(i).of(""), Message: tooLarge(a.mostJobBytes()).Detail}}
			continue
		}
		if err := a.parse(element, spec); err != nil {
			many.items[i].Errors = place(i).fields(err)
			continue
		}
		specs, places = append(specs, spec), append(places, i)
	}
	results, err := a.client.EnqueueMany(ctx, specs)
	answered := len(elements)
	for i, result := range results {
		item := &many.items[places[i]]
		switch {
		case result.Job != nil:
			item.ID, item.Status, item.Duplicate = result.Job.ID, string(result.Job.Status), result.Job.Duplicate
		case result.Err != nil && errors.Is(result.Err, jobs.ErrInvalid):
			item.Errors = place(places[i]).fields(result.Err)
		default:
			answered = min(answered, places[i])
			if err == nil {
				err = result.Err
			}
		}
	}
	for i := range many.items[:answered] {
		many.count(&many.items[i])
	}
	if err != nil {
		p := a.problem(ctx, "body", err)
		p.Progress = many.progress(answered)
		p.write(w)
		return
	}
	a.writeMany(ctx, w, many, many.items)
}

// place is where a job of an array is.
func place(i int) at { return at("body[" + strconv.Itoa(i) + "]") }

// split takes an array apart. Its elements are parts of data.
func split(data []byte) ([][]byte, *Problem) {
	if !json.Valid(data) {
		var anything any
		return nil, syntaxProblem(errors.New("is not valid JSON: " + json.Unmarshal(data, &anything).Error()))
	}
	elements, ok := jobjson.Elements(data, mostItems)
	if !ok {
		return nil, newProblem(http.StatusRequestEntityTooLarge, "the array has more than %d jobs, which is the most that is accepted; send several, or lines (%s), of which there may be any number", mostItems, ndjsonType)
	}
	return elements, nil
}

// many counts what becomes of many jobs.
type many struct {
	items                          []EnqueuedItem
	accepted, duplicates, rejected int
}

func newMany(n int) *many { return &many{items: make([]EnqueuedItem, 0, n)} }

func (m *many) count(item *EnqueuedItem) {
	switch {
	case item.Errors != nil:
		m.rejected++
	case item.Duplicate:
		m.duplicates++
	default:
		m.accepted++
	}
}

func (m *many) progress(answered int) *Progress {
	return &Progress{Answered: answered, Accepted: m.accepted, Duplicates: m.duplicates, Rejected: m.rejected}
}

// writeMany says what became of many jobs: 201 if any was enqueued; 200 if none was
// and none was refused, or some existed; 422 if all that there were are refused.
func (a *api) writeMany(ctx context.Context, w http.ResponseWriter, m *many, items []EnqueuedItem) {
	status := http.StatusOK
	switch {
	case m.accepted > 0:
		status = http.StatusCreated
	case m.rejected > 0 && m.duplicates == 0:
		p := newProblem(http.StatusUnprocessableEntity, "none of the jobs can be accepted; errors says what is wrong with each")
		for _, item := range items {
			p.Errors = append(p.Errors, item.Errors...)
			if len(p.Errors) >= mostRejections {
				break
			}
		}
		p.Progress = m.progress(m.rejected)
		p.write(w)
		return
	}
	a.writeJSON(ctx, w, status, Enqueued{Accepted: m.accepted, Duplicates: m.duplicates, Rejected: m.rejected, Items: items})
}
