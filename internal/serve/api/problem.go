package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// Problem is an error in the form of RFC 9457. Of the request it repeats only names and short
// values, never a payload.
type Problem struct { //nolint:errname // the name in the RFC
	Type   string         `json:"type" doc:"Always about:blank: status and title say what kind of problem it is." example:"about:blank"`
	Title  string         `json:"title" doc:"The status in words." example:"Unprocessable Entity"`
	Status int            `json:"status" doc:"The HTTP status." example:"422"`
	Detail string         `json:"detail" doc:"What is wrong and what to do, for people." example:"the job cannot be accepted"`
	Errors []ProblemField `json:"errors,omitempty" doc:"Everything that is wrong with what was sent, each with its place."`

	Reason string     `json:"reason,omitempty" enum:"breaker_open,breaker_tripped,credentials,breaker_probing,rate,budget,concurrency,slow_start,learned" doc:"Of a permit that is refused, or a job of the gateway that cannot start: why, for programs." example:"breaker_open"`
	Until  *time.Time `json:"until,omitempty" doc:"Of the same: when to ask again; left out if that is not known." example:"2030-01-31T14:35:00Z"`

	// Of the gateway, for SDKs.
	SDKMessage string    `json:"message,omitempty" doc:"In the gateway: the detail, where SDKs look for it." example:"the job expired before it could be published"`
	SDKError   *SDKError `json:"error,omitempty" doc:"In the gateway: the error in the form of most APIs, by which SDKs recognize one."`

	// Of an enqueue of many that ended early, or that enqueued nothing because all jobs were refused.
	*Progress
	Items []EnqueuedItem `json:"items,omitempty" doc:"Where all jobs of an enqueue of many were refused: each of them with its index and its errors, as in the response where some are accepted."`

	retryAfter int  // seconds; 0: no header
	plainOnly  bool // bodies are not accepted in another encoding
}

// SDKError is an error in the form of most APIs.
type SDKError struct {
	Message string `json:"message" doc:"The detail." example:"the job expired before it could be published"`
	Type    string `json:"type" enum:"authentication_error,permission_error,invalid_request_error,rate_limit_error,api_error" doc:"Its kind, by the status." example:"api_error"`
	Code    string `json:"code" doc:"The reason, or the title in small letters with underscores." example:"gateway_timeout"`
}

// forSDKs adds what SDKs look for.
func (p *Problem) forSDKs() *Problem {
	kind := "invalid_request_error"
	switch {
	case p.Status == http.StatusUnauthorized:
		kind = "authentication_error"
	case p.Status == http.StatusForbidden:
		kind = "permission_error"
	case p.Status == http.StatusTooManyRequests, p.Reason != "":
		kind = "rate_limit_error"
	case p.Status >= http.StatusInternalServerError:
		kind = "api_error"
	}
	p.SDKMessage = p.Detail
	p.SDKError = &SDKError{p.Detail, kind, cmp.Or(p.Reason, strings.ReplaceAll(strings.ToLower(p.Title), " ", "_"))}
	return p
}

// GatewayProblem writes an error of the gateway.
func GatewayProblem(w http.ResponseWriter, status int, detail string) {
	newProblem(status, "%s", detail).forSDKs().write(w)
}

// ProblemField is one validation error.
type ProblemField struct {
	Location string `json:"location" doc:"Where it is: body, path or query, then the field; elements of an array by their index." example:"body.retry.max_retries"`
	Message  string `json:"message" doc:"What is wrong with it." example:"must be from 1 to 10, is 99"`
}

// Progress of an enqueue of many that ended early.
type Progress struct {
	Answered   int `json:"answered" required:"false" doc:"Enqueues of many that ended early: this many jobs, from the first, are answered for certain. Of those after them some may have been enqueued: only those with an id can be sent again safely." example:"12"`
	Accepted   int `json:"accepted" required:"false" doc:"How many of them were enqueued." example:"12"`
	Duplicates int `json:"duplicates" required:"false" doc:"How many of them existed already." example:"0"`
	Rejected   int `json:"rejected" required:"false" doc:"How many of them were refused." example:"0"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns further headers of the response.
func (p *Problem) GetHeaders() http.Header {
	switch {
	case p.Status == http.StatusUnauthorized:
		return http.Header{"Www-Authenticate": {"Bearer"}}
	case p.plainOnly:
		return http.Header{"Accept-Encoding": {"identity"}}
	case p.retryAfter > 0:
		return http.Header{"Retry-After": {strconv.Itoa(p.retryAfter)}}
	}
	return nil
}

// ContentType returns the content type of problems.
func (p *Problem) ContentType(string) string { return problemType }

const (
	problemType = "application/problem+json"
	jsonType    = "application/json"
	ndjsonType  = "application/x-ndjson"
)

// retrySoon is the Retry-After, in seconds, while Redis is unavailable.
const retrySoon = 5

func newProblem(status int, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

// retryLater is a problem of this instance that ends.
func retryLater(detail string) *Problem {
	p := newProblem(http.StatusServiceUnavailable, "%s", detail)
	p.retryAfter = retrySoon
	return p
}

// invalid is a problem with one field.
func invalid(location, format string, args ...any) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, "%s cannot be accepted", location)
	p.Errors = []ProblemField{{Location: location, Message: fmt.Sprintf(format, args...)}}
	return p
}

// problemOfHuma converts a validation error of the router, without the values, which may be
// secrets.
func problemOfHuma(status int, text string, errs ...error) huma.StatusError {
	p := newProblem(status, "%s", text)
	for _, err := range errs {
		if err == nil || len(p.Errors) == jobjson.MostErrors {
			continue
		}
		field := ProblemField{Message: err.Error()}
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			field = ProblemField{Location: d.Location, Message: d.Message}
		}
		p.Errors = append(p.Errors, field)
	}
	if status == http.StatusUnprocessableEntity {
		p.Detail = "the request cannot be accepted"
	}
	return p
}

// byLocation orders validation errors.
func byLocation(a, b ProblemField) int { return strings.Compare(a.Location, b.Location) }

// at is the location of an input: a job, a filter, a path.
type at string

// of is the location of a field.
func (a at) of(field string) string {
	switch field {
	case "at":
		field = "available_at"
	case "":
		return string(a)
	}
	return string(a) + "." + field
}

// fields returns the validation errors of an input; nil if the error is of another kind.
func (a at) fields(ctx context.Context, err error) []ProblemField {
	var (
		wrong   *jobs.ValidationError
		unknown *jobs.UnknownDestinationError
		status  *ops.StatusFilterError
		late    *jobs.LateError
	)
	switch {
	case errors.As(err, &late):
		return []ProblemField{{Location: a.of("if_late"), Message: late.Error()}}
	case errors.As(err, &status):
		return []ProblemField{{Location: a.of("status"), Message: status.Error()}}
	case errors.As(err, &unknown): // before wrong, which it wraps
		return []ProblemField{{Location: a.of("destination"), Message: unknownDestination(ctx, unknown)}}
	case errors.As(err, &wrong):
		out := make([]ProblemField, len(wrong.Fields))
		for i, f := range wrong.Fields {
			out[i] = ProblemField{Location: a.of(f.Field), Message: f.Message}
		}
		return out
	case errors.Is(err, jobs.ErrInvalid):
		return []ProblemField{{Location: string(a), Message: strings.TrimPrefix(err.Error(), "jobs: ")}}
	}
	return nil
}

func unknownDestination(ctx context.Context, e *jobs.UnknownDestinationError) string {
	if id, _ := access.From(ctx); id.Confined() { // the others are not its business
		return fmt.Sprintf("%q is not known", e.Name)
	}
	if e.Queues > 0 {
		return fmt.Sprintf("%q is not known, no other is, and there are %d queues already: start a worker that serves it", e.Name, e.Queues)
	}
	if len(e.Known) == 0 {
		return fmt.Sprintf("%q is not known, and no other is: start a worker that serves it", e.Name)
	}
	const most = 20
	names, more := e.Known, ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	return fmt.Sprintf("%q is not known; known are %s%s", e.Name, strings.Join(names, ", "), more)
}

// problem converts an error to a Problem for the caller. where is the location of the input
// that it may be about.
func (a *api) problem(ctx context.Context, where at, err error) *Problem {
	var (
		known  *Problem
		status *jobs.StatusError
	)
	fields := where.fields(ctx, err)
	id, _ := access.From(ctx)
	switch {
	case errors.As(err, &known):
		return known
	case fields != nil:
		p := newProblem(http.StatusUnprocessableEntity, "what was sent cannot be accepted; errors says what is wrong with it")
		p.Errors = fields
		if id.Confined() && (errors.Is(err, errElsewhere) || errors.Is(err, jobs.ErrUnknownDestination)) {
			p.Status, p.Title = http.StatusNotFound, http.StatusText(http.StatusNotFound)
		} else if late, ok := errors.AsType[*jobs.LateError](err); ok {
			p.Detail = late.Error()
		}
		return p
	case errors.Is(err, jobs.ErrNotFound):
		return newProblem(http.StatusNotFound, "no such job is known: it was never enqueued, or its retention has ended")
	case errors.As(err, &status):
		return newProblem(http.StatusConflict, "%s", status.Error())
	}
	if p := redisProblem(err); p != nil {
		if !errors.Is(err, context.Canceled) {
			a.log.WarnContext(ctx, "request failed because of Redis", "error", err)
		}
		return p
	}
	a.log.ErrorContext(ctx, "request failed", "error", err)
	return newProblem(http.StatusInternalServerError, "something went wrong that should not; the server's log says what")
}

// redisProblem is the response if Redis is unavailable or refuses a write; nil if the error is
// of another kind. The text of the error is only logged: it names hosts.
func redisProblem(err error) *Problem {
	var (
		network net.Error
		reply   redis.Error
	)
	text := err.Error()
	switch {
	case strings.Contains(text, "OOM command not allowed"):
		return retryLater("Redis is full and takes nothing new; try again later")
	case strings.Contains(text, "READONLY"), strings.Contains(text, "MISCONF"), strings.Contains(text, "NOREPLICAS"):
		return retryLater("Redis refuses to write at the moment; try again later")
	case errors.Is(err, context.DeadlineExceeded):
		return retryLater("Redis did not answer in time; try again later")
	case errors.As(err, &network), errors.As(err, &reply), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, breaker.ErrUnavailable), errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout),
		errors.Is(err, context.Canceled):
		return retryLater("Redis cannot be reached at the moment; try again later")
	}
	return nil
}

// write sends a problem.
func (p *Problem) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), p.GetHeaders())
	b, err := json.Marshal(p)
	if err != nil { // of strings and numbers
		b = nil
	}
	b = append(b, '\n')
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}
