// Package api is the HTTP API: it enqueues, reads and acts on jobs, reads and operates breakers
// and destinations, and streams events. It serves its OpenAPI document.
//
// internal/serve/access authenticates requests before; this package checks scopes.
package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/internal/serve/permits"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/feed"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// Options configure an API.
type Options struct {
	// Redis is required.
	Redis redis.UniversalClient
	// Client on Redis. Required.
	Client *jobs.Client
	// Limits of the client, for its errors and the size of bodies.
	Limits jobs.Limits
	// Events is the source of GET /v1/events; nil: 503.
	Events *feed.Hub
	// Cache of what is read of all destinations, shared with the dashboard. Default: its own.
	Cache *ops.Cache
	// Permits grants calls of programs that are not jobs; nil: 503.
	Permits *permits.Permits
	// Gateway returns how long the gateway waits for a destination where its caller says nothing, and whether it is
	// strict; nil: not at all.
	Gateway func(destination string) (wait time.Duration, strict bool)
	// Heartbeat is the interval of comments on a stream without events. Default 15 s.
	Heartbeat time.Duration
	// Logger gets errors and the audit log. Default: none.
	Logger *slog.Logger
}

// Bounds of request bodies.
const (
	// mostItems of an array, and mostArrayBytes of its body.
	mostItems      = 10_000
	mostArrayBytes = 32 << 20
	// jobSlack is how much longer than its payload a job may be: path, query, headers
	// and names.
	jobSlack = 64 << 10
	// mostActionBytes bounds the body of other requests.
	mostActionBytes = 64 << 10
)

// Timeouts of requests.
const (
	lookTimeout = 20 * time.Second
	bulkTimeout = 10 * time.Minute
)

// api is the API.
type api struct {
	client    *jobs.Client
	ops       *ops.System
	limits    jobs.Limits
	events    *feed.Hub
	permits   *permits.Permits
	gatewayOf func(destination string) (wait time.Duration, strict bool)
	heartbeat time.Duration
	log       *slog.Logger
	bodies    *room
	lists     *room
	waiters   *room
	cache     *ops.Cache

	mux      *http.ServeMux
	huma     huma.API
	document []byte
}

// New returns the handler of /v1/… and /openapi.json. Requests to /v1/… come
// with an [access.Identity] in their context.
func New(o Options) http.Handler {
	a := build(o)
	return a
}

// build returns an API with all operations.
func build(o Options) *api {
	a := &api{
		client: o.Client, limits: o.Limits, events: o.Events, permits: o.Permits, gatewayOf: o.Gateway, heartbeat: o.Heartbeat, log: o.Logger,
		bodies: newRoom(mostBodyBytes), lists: newRoom(mostListBytes), waiters: newRoom(mostWaiters), mux: http.NewServeMux(), cache: o.Cache,
	}
	a.limits.MaxPayloadBytes = cmp.Or(a.limits.MaxPayloadBytes, 262144)
	a.heartbeat = cmp.Or(a.heartbeat, 15*time.Second)
	if a.gatewayOf == nil {
		a.gatewayOf = func(string) (time.Duration, bool) { return 0, false }
	}
	a.log = cmp.Or(a.log, slog.New(slog.DiscardHandler))
	a.cache = cmp.Or(a.cache, ops.NewCache(nil))
	a.ops = ops.New(ops.Options{Redis: o.Redis, Client: o.Client, Log: a.log, Cache: a.cache})
	a.huma = humago.New(a.mux, humaConfig())
	a.enqueueOperations()
	a.jobOperations()
	a.batchJobsOperation()
	a.actOperations()
	a.completeOperations()
	a.breakerOperations()
	a.destinationOperations()
	a.eventOperations()
	a.permitOperations()
	a.gatewayOperations()
	a.document = document(a.huma)
	a.mux.HandleFunc("GET /openapi.json", a.serveDocument)
	a.mux.HandleFunc("/", a.noSuchRoute)
	return a
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		h.Set("Cache-Control", "no-store")
	}
	if IsGateway(r) {
		a.gateway(w, r)
		return
	}
	// The mux would redirect to the clean path.
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path {
		noRoute().write(w)
		return
	}
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
	case r.Method == http.MethodPost && r.URL.Path == "/v1/jobs":
		defer a.cache.Wrote(r.Context()) // before the response ends
	default:
		most := mostActionBytes
		if r.Method == http.MethodPatch || strings.HasPrefix(r.URL.Path, CompletionsPath) {
			most = mostCompletionBytes
		}
		p := a.takeBody(w, r, most)
		if p != nil {
			p.write(w)
			return
		}
	}
	webserver.Routed(a.mux).ServeHTTP(w, r)
}

// takeBody reads the small body of an action, of at most that many bytes, before the operation begins.
func (a *api) takeBody(w http.ResponseWriter, r *http.Request, most int) *Problem {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	if err != nil {
		return bodyProblem(err, most)
	}
	if b = bytes.TrimSpace(b); len(b) > 0 {
		if p := encoded(r); p != nil {
			return p
		}
		if kind := contentType(r); kind != jsonType {
			return wrongType(kind, jsonType)
		}
		if !utf8.Valid(b) {
			return invalid("body", "%s", jobjson.ErrNotUTF8.Error())
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// bodyProblem converts an error of reading a body.
func bodyProblem(err error, most int) *Problem {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return newProblem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes, which is the most that is accepted here", most)
	case errors.Is(err, webserver.ErrSlowBody), errors.Is(err, os.ErrDeadlineExceeded):
		return newProblem(http.StatusRequestTimeout, "the body came too slowly")
	}
	return newProblem(http.StatusBadRequest, "the body could not be read to its end")
}

// contentType returns the media type of the body, "" if it is missing.
func contentType(r *http.Request) string {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return kind + "; charset=" + charset
	}
	return kind
}

// encoded refuses a compressed body.
func encoded(r *http.Request) *Problem {
	if how := strings.Join(r.Header.Values("Content-Encoding"), ","); how != "" && !strings.EqualFold(how, "identity") {
		p := newProblem(http.StatusUnsupportedMediaType, "a Content-Encoding is not accepted; send the body as it is")
		p.plainOnly = true
		return p
	}
	return nil
}

func wrongType(kind string, want ...string) *Problem {
	if kind == "" {
		return newProblem(http.StatusUnsupportedMediaType, "the header Content-Type is missing; it must be %s", strings.Join(want, " or "))
	}
	return newProblem(http.StatusUnsupportedMediaType, "the Content-Type is not accepted here; it must be %s", strings.Join(want, " or "))
}

func noRoute() *Problem {
	return newProblem(http.StatusNotFound, "there is nothing at this path; /openapi.json says what there is")
}

// noSuchRoute answers a request that matches no operation.
func (a *api) noSuchRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		noRoute().write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	newProblem(http.StatusMethodNotAllowed, "this path takes %s only", strings.Join(allowed, " and ")).write(w)
}

// may returns a Problem if the caller lacks the scope.
func (a *api) may(ctx context.Context, scope access.Scope) *Problem {
	if err := access.Check(ctx, scope); err != nil {
		return newProblem(err.Status, "%s", err.Message)
	}
	return nil
}
