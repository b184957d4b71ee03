package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/jobs"
)

// eventTypes are the values of the parameter type.
var eventTypes = []string{"job", "job.completed", "job.failed", "job.cancelled", "job.expired", feed.Breaker, feed.Destination}

// mostEventBytes bounds the events of one write, without responses, mostEvents their number.
const mostEventBytes, mostEvents = 64 << 10, 100

// eventsOf returns the selection of events of a request, and whether they come with responses.
func eventsOf(r *http.Request) (o feed.SubscribeOptions, responses bool, p *Problem) {
	if p := checkQuery(r); p != nil {
		return o, false, p
	}
	p = newProblem(http.StatusUnprocessableEntity, "the request cannot be accepted")
	bad := func(location, message string) {
		p.Errors = append(p.Errors, ProblemField{location, message})
	}
	query := r.URL.Query()
	o.Destination, o.After = query.Get("destination"), r.Header.Get("Last-Event-ID")
	if o.After == "" { // the header of a reconnecting browser is newer
		o.After = query.Get("after")
	}
	for name := range query {
		if !slices.Contains([]string{"destination", "type", "after", "responses"}, name) {
			bad("query."+name, "unknown query parameter")
		}
	}
	if o.Destination != "" && !jobs.ValidDestination(o.Destination) {
		bad("query.destination", "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit")
	}
	if responses = query.Get("responses") == "true"; !responses && query.Has("responses") && query.Get("responses") != "false" {
		bad("query.responses", "must be true or false")
	}
	for _, several := range query["type"] {
		for name := range strings.SplitSeq(several, ",") {
			if !slices.Contains(eventTypes, name) {
				bad("query.type", "there are "+strings.Join(eventTypes, ", "))
				break
			}
			o.Types = append(o.Types, name)
		}
	}
	if len(p.Errors) > 0 {
		slices.SortFunc(p.Errors, byLocation)
		return o, false, p
	}
	return o, responses, nil
}

// streamEvents is GET /v1/events.
func (a *api) streamEvents(w http.ResponseWriter, r *http.Request) {
	p := a.may(r.Context(), access.ScopeRead)
	var o feed.SubscribeOptions
	responses := false
	if p == nil {
		o, responses, p = eventsOf(r)
	}
	if p == nil && responses {
		p = a.may(r.Context(), access.ScopePayloads)
	}
	if id, _ := access.From(r.Context()); p == nil && id.Confined() {
		o.May = id.May
		if o.Destination != "" && !id.Sees(o.Destination) {
			p = a.problem(r.Context(), "query", &jobs.UnknownDestinationError{Name: o.Destination})
		}
	}
	if p != nil {
		p.write(w)
		return
	}
	ctx, cancel, err := webserver.Stream(r.Context())
	if err != nil {
		a.eventsProblem(r.Context(), err).write(w)
		return
	}
	defer cancel()
	sub, err := a.subscribe(ctx, o)
	if err != nil {
		a.eventsProblem(ctx, err).write(w)
		return
	}
	defer sub.Close()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy must not wait for more
	w.WriteHeader(http.StatusOK)
	a.writeEvents(ctx, w, sub, responses)
}

// errNoEvents is the error of an API without a hub.
var errNoEvents = errors.New("no events here")

func (a *api) subscribe(ctx context.Context, o feed.SubscribeOptions) (*feed.Subscription, error) {
	if a.events == nil {
		return nil, errNoEvents
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return a.events.Subscribe(ctx, o)
}

func (a *api) eventsProblem(ctx context.Context, err error) *Problem {
	var p *Problem
	switch {
	case errors.Is(err, feed.ErrBadID):
		return invalid("header.Last-Event-ID", "is not a valid id of an event")
	case errors.Is(err, feed.ErrTooMany), errors.Is(err, webserver.ErrTooManyStreams):
		p = newProblem(http.StatusServiceUnavailable, "too many subscribers of events; try again later, or use another instance")
	case errors.Is(err, feed.ErrClosed), errors.Is(err, errNoEvents):
		p = newProblem(http.StatusServiceUnavailable, "there are no events here at the moment")
	default:
		return a.problem(ctx, "query", err)
	}
	p.retryAfter = retrySoon
	return p
}

// writeEvents writes events until the client disconnects, is too slow, or loses the scope.
// Buffered events are written at once, with their responses read together. If these cannot be read, the stream ends
// before them.
func (a *api) writeEvents(ctx context.Context, w http.ResponseWriter, sub *feed.Subscription, responses bool) {
	id, _ := access.From(ctx)
	control := http.NewResponseController(w)
	var out bytes.Buffer
	send := func() bool {
		_, err := w.Write(out.Bytes())
		out.Reset()
		return err == nil && control.Flush() == nil
	}
	out.WriteString("retry: 2000\n: the stream stays open until you close it\n\n")
	if !send() {
		return
	}
	beat := time.NewTicker(a.heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !id.Valid() {
				return
			}
			out.WriteString(": still here\n\n")
		case e, ok := <-sub.C:
			var batch []feed.Event
			for size, more := 0, ok; more; {
				batch, size = append(batch, e), size+len(e.Data)
				if more = size < mostEventBytes && len(batch) < mostEvents; !more {
					break
				}
				select {
				case e, ok = <-sub.C:
					more = ok
				default:
					more = false
				}
			}
			if responses && a.events.AddResponses(ctx, batch) != nil {
				batch, ok = nil, false
			}
			for _, e := range batch {
				writeEvent(&out, e)
			}
			if !ok {
				_ = send()
				return
			}
		}
		if !send() {
			return
		}
	}
}

// writeEvent writes an event in the form of server-sent events. Its data is JSON on one line.
func writeEvent(out *bytes.Buffer, e feed.Event) {
	out.WriteString("event: " + e.Type + "\nid: " + e.ID + "\ndata: ")
	out.Write(e.Data)
	out.WriteString("\n\n")
}
