package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// enqueueTimeout bounds an enqueue that has begun: it is completed even if the client
// disconnects.
const enqueueTimeout = 30 * time.Second

// enqueue is POST /v1/jobs. The body is parsed without reflection, because it is the
// most frequent request.
func (a *api) enqueue(w http.ResponseWriter, r *http.Request) {
	p := a.may(r.Context(), access.ScopeEnqueue)
	if p == nil && r.URL.RawQuery != "" {
		p = newProblem(http.StatusUnprocessableEntity, "this request takes no query")
	}
	if p == nil {
		p = encoded(r)
	}
	if p != nil {
		p.write(w)
		return
	}
	switch kind := contentType(r); kind {
	case jsonType:
		a.enqueueDocument(w, r)
	case ndjsonType:
		a.enqueueLines(w, r)
	default:
		wrongType(kind, jsonType, ndjsonType).write(w)
	}
}

// enqueueDocument enqueues a job or an array of jobs.
func (a *api) enqueueDocument(w http.ResponseWriter, r *http.Request) {
	data, leave, p := a.readDocument(w, r)
	defer leave()
	if p != nil {
		p.write(w)
		return
	}
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '[' {
		a.enqueueArray(w, r, data)
		return
	}
	a.enqueueOne(w, r, data)
}

// enqueueOne enqueues one job.
func (a *api) enqueueOne(w http.ResponseWriter, r *http.Request, data []byte) {
	if most := a.mostJobBytes(); len(data) > most {
		tooLarge(most).write(w)
		return
	}
	ctx, cancel := begun(r.Context())
	defer cancel()
	id, _ := access.From(ctx)
	spec := &jobs.Spec{}
	err := a.parse(data, spec)
	if err == nil {
		err = a.claim(id, spec)
	}
	if err == nil {
		if _, p := a.takeQuota(ctx, []*jobs.Spec{spec}, 0); p != nil {
			p.write(w)
			return
		}
	}
	var job *jobs.Job
	if err == nil {
		job, err = a.client.Enqueue(ctx, spec)
		a.ops.Return(ctx, spec, err)
	}
	if err != nil {
		p := a.problem(ctx, "body", err)
		if syntax, ok := errors.AsType[*jobjson.SyntaxError](err); ok && !errors.Is(err, jobjson.ErrNotUTF8) {
			p = syntaxProblem(syntax)
		}
		p.write(w)
		return
	}
	if taken(id, job) {
		p := newProblem(http.StatusConflict, "the id of the job %s; choose another", idTaken)
		p.Errors = []ProblemField{{at("body").of("id"), idTaken}}
		p.write(w)
		return
	}
	w.Header().Set("Location", "/v1/jobs/"+job.ID)
	a.warnUnserved(ctx, w.Header(), job.Destination)
	if !job.Duplicate { // the caller knows the payload
		a.writeJSON(ctx, w, http.StatusCreated, a.ops.Enqueued(ctx, job))
		return
	}
	// The existing job may have another payload.
	if !id.Can(access.ScopeRead) {
		a.writeJSON(ctx, w, http.StatusOK, KnownJob{ID: job.ID, Destination: job.Destination, Status: string(job.Status), Duplicate: true, Redacted: true})
		return
	}
	a.writeJSON(ctx, w, http.StatusOK, shownTo(ctx, ops.Job{Job: job}))
}

const (
	// warningHeader says what the caller should know of jobs that were accepted.
	warningHeader = "Tidegate-Warning"
	// mostWarnings bounds the warnings of one answer.
	mostWarnings = 5
)

// warnUnserved warns of destinations that no worker serves any more. It reads Redis at most once
// a second; after an error there is no warning.
func (a *api) warnUnserved(ctx context.Context, h http.Header, destinations ...string) {
	for _, destination := range destinations {
		gone, _, err := a.client.UnservedFor(ctx, destination)
		if err == nil && gone > 0 && len(h.Values(warningHeader)) < mostWarnings {
			h.Add(warningHeader, "no worker has served "+destination+" for "+explain.Duration(gone)+"; its jobs wait until one does")
		}
	}
}

// idTaken is the only error about a job whose id another owner has used.
const idTaken = "is taken"

// taken reports whether the id of a job existed and has another owner than the caller's token. An
// id without an owner, from Go, the command line or Tidegate itself, is visible to callers that
// may read the job.
func taken(id access.Identity, job *jobs.Job) bool {
	name := id.Token()
	if !job.Duplicate || name == "" || job.Owner == name && id.May(job.Destination, job.Key) {
		return false
	}
	return !id.May(job.Destination, job.Key) || job.Owner != "" || !id.Can(access.ScopeRead)
}

// syntaxProblem is for a body that is not valid JSON.
func syntaxProblem(err error) *Problem {
	p := newProblem(http.StatusBadRequest, "the body %s", err.Error())
	p.Errors = []ProblemField{{Location: "body", Message: err.Error()}}
	return p
}

// parse parses a job. The error has all validation errors.
func (a *api) parse(data []byte, spec *jobs.Spec) error {
	if err := jobjson.Parse(data, spec); err != nil {
		return jobjson.Complete(err, spec, a.limits)
	}
	return nil
}

// begun returns a context that does not end when the client disconnects.
func begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), enqueueTimeout)
}

// mostJobBytes bounds the JSON of one job.
func (a *api) mostJobBytes() int { return a.limits.MaxPayloadBytes + jobSlack }

func tooLarge(most int) *Problem {
	return newProblem(http.StatusRequestEntityTooLarge, "the job has more than %d bytes, which is the most that is accepted (MAX_PAYLOAD_BYTES and room for the rest); store the payload elsewhere and send a reference", most)
}

// errBusy says that too much is on its way to Redis already.
func errBusy() *Problem {
	p := newProblem(http.StatusServiceUnavailable, "too much is being enqueued here at the moment; try again in a second")
	p.retryAfter = 1
	return p
}

// firstRead is how much of a body of unknown length is read before it takes the room of the longest job.
const firstRead = 64 << 10

// readDocument reads a body: of a job, or of an array, which may be longer. leave gives back its room.
func (a *api) readDocument(w http.ResponseWriter, r *http.Request) (data []byte, leave func(), p *Problem) {
	most := a.mostJobBytes()
	body := http.MaxBytesReader(w, r.Body, mostArrayBytes)
	leave = func() {}
	read := func(room int64, from io.Reader) *Problem {
		leave() // and not both, so that no two bodies wait for each other
		if leave = a.bodies.enter(r.Context(), room); leave == nil {
			leave = func() {}
			return errBusy()
		}
		part, err := io.ReadAll(from)
		if data = append(data, part...); err != nil {
			return bodyProblem(err, mostArrayBytes)
		}
		return nil
	}
	if r.ContentLength > mostArrayBytes {
		return nil, leave, bodyProblem(&http.MaxBytesError{Limit: mostArrayBytes}, mostArrayBytes)
	}
	size := min(most, firstRead)
	if r.ContentLength >= 0 {
		size = int(min(r.ContentLength, int64(most)))
	}
	for ; ; size = most {
		p := read(int64(size+jobMemory), io.LimitReader(body, int64(size+1-len(data))))
		if p != nil || len(data) <= size {
			return data, leave, p
		}
		if size == most {
			break
		}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		return nil, leave, tooLarge(most)
	}
	length := int64(mostArrayBytes)
	if r.ContentLength > 0 {
		length = r.ContentLength
	}
	p = read(length+mostItems*jobMemory, body)
	return data, leave, p
}

// writeJSON writes a JSON response.
func (a *api) writeJSON(ctx context.Context, w http.ResponseWriter, status int, doc any) {
	b, err := json.Marshal(doc)
	if err != nil {
		a.problem(ctx, "body", err).write(w)
		return
	}
	b = append(b, '\n')
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
