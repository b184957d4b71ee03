package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

type pauseInput struct {
	DestinationOnly

	Body *Reason `doc:"May be left out."`
}

// DestinationOnly names a destination by its path.
type DestinationOnly struct {
	Destination string `path:"destination" maxLength:"63" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"1 to 63 of a-z, 0-9 and -, starting with a letter or digit" doc:"Name of the destination." example:"deviantart"`
}

// errorsInput names a destination, and the time whose errors are listed.
type errorsInput struct {
	DestinationOnly

	Since time.Time `query:"since" doc:"Only of attempts from that hour on; of all 25 hours unless given." example:"2030-01-31T14:00:00Z"`
}

type forecastInput struct {
	DestinationOnly

	Key string `query:"key" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" patternDescription:"1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit" doc:"Say also when the waiting jobs of this key have started." example:"alice"`
}

// destinationFilter is a filter by destination.
type destinationFilter struct {
	Destination string `query:"destination" maxLength:"63" doc:"Only of this destination." example:"deviantart"`
}

// auditInput selects acts of operators.
type auditInput struct {
	Since  time.Time `query:"since" doc:"Only acts from then on." example:"2030-01-31T14:00:00Z"`
	Until  time.Time `query:"until" doc:"Only acts until then." example:"2030-01-31T15:00:00Z"`
	Who    string    `query:"who" maxLength:"200" doc:"Only acts of operators whose name has this text." example:"ann"`
	Action string    `query:"action" maxLength:"200" doc:"Only actions that have this text." example:"pause"`
	Limit  int       `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many at most." example:"50"`
	Cursor string    `query:"cursor" maxLength:"64" doc:"Field next of the page before; leave it out for the first one." example:""`
}

// destinationOperations are those about destinations, workers and figures.
func (a *api) destinationOperations() {
	register[ops.List[ops.Destination]](a, operation{
		method: http.MethodGet, path: "/v1/destinations", id: "list-destinations", tag: tagDestinations, scope: access.ScopeRead, confined: true,
		summary:     "List destinations",
		description: "Those that are known from the configuration, or because workers serve or served them.",
	}, func(ctx context.Context, _ *struct{}) (any, error) { return listOf(a.ops.Destinations(ctx)) })
	for pause, o := range map[bool]operation{
		true: {
			path: "/v1/destinations/{destination}/pause", id: "pause-destination", summary: "Pause a destination",
			description: "No job of it starts until it is resumed; calls in flight finish, and jobs can still be enqueued. A pause survives restarts and is independent of the circuit breaker; either one stops the jobs.",
		},
		false: {
			path: "/v1/destinations/{destination}/resume", id: "resume-destination", summary: "Resume a destination",
			description: "Ends the pause of a destination.",
		},
	} {
		o.method, o.tag, o.scope, o.missing, o.where, o.confined = http.MethodPost, tagDestinations, access.ScopeOperate, true, "path", true
		register[ops.PausedDestination](a, o, func(ctx context.Context, in *pauseInput) (any, error) {
			out, err := a.ops.PauseDestination(ctx, in.Destination, pause, why(ctx, in.Body))
			return out, notFoundIfUnknown(ctx, err)
		})
	}
	register[ops.ForgottenDestination](a, operation{
		method: http.MethodDelete, path: "/v1/destinations/{destination}", id: "forget-destination", tag: tagDestinations, scope: access.ScopeOperate,
		missing: true, conflict: true, where: "path",
		summary:     "Forget a destination",
		description: "Takes a destination that was removed from the configuration out of all lists, with its breaker, limits, statistics and finished jobs. The answer is 409 while a worker serves it, the configuration names it or jobs wait for it. One that was taken out of a destinations file is forgotten by itself once its last job is gone.",
	}, func(ctx context.Context, in *pauseInput) (any, error) {
		out, err := a.ops.ForgetDestination(ctx, in.Destination, why(ctx, in.Body))
		if errors.Is(err, jobs.ErrInUse) {
			return nil, newProblem(http.StatusConflict, "destination %s", strings.TrimPrefix(err.Error(), "jobs: forget destination: "))
		}
		return out, notFoundIfUnknown(ctx, err)
	})
	register[ops.List[ops.ErrorCount]](a, operation{
		method: http.MethodGet, path: "/v1/destinations/{destination}/errors", id: "list-errors", tag: tagDestinations, scope: access.ScopeRead,
		missing: true, confined: true, where: "path",
		summary:     "List the most frequent errors",
		description: "What attempts of the destination ended with, the most frequent first: counted by text, with ids and numbers left out, per hour. 25 hours are kept.",
	}, func(ctx context.Context, in *errorsInput) (any, error) {
		out, err := a.ops.TopErrors(ctx, in.Destination, in.Since)
		return out, notFoundIfUnknown(ctx, err)
	})
	register[Forecast](a, operation{
		method: http.MethodGet, path: "/v1/destinations/{destination}/forecast", id: "get-forecast", tag: tagDestinations, scope: access.ScopeRead, missing: true, confined: true, where: "path",
		summary:     "Get a forecast",
		description: "When the backlog of a destination is empty if no job is enqueued, what holds its jobs, and what expires before it can start. It takes the same time whatever the number of jobs, and is a second old at most.",
	}, func(ctx context.Context, in *forecastInput) (any, error) {
		out, err := a.ops.Forecast(ctx, in.Destination, in.Key)
		return out, notFoundIfUnknown(ctx, err)
	})
	register[ops.KeyBacklog](a, operation{
		method: http.MethodGet, path: "/v1/destinations/{destination}/keys", id: "count-keys", tag: tagDestinations, scope: access.ScopeRead,
		missing: true, confined: true, where: "path",
		summary:     "Count waiting jobs by key",
		description: "The keys of the destination with most waiting jobs. Held jobs are counted; of the others a sample of the queue is read, and the rest estimated.",
	}, func(ctx context.Context, in *DestinationOnly) (any, error) {
		out, err := a.ops.Keys(ctx, in.Destination)
		return out, notFoundIfUnknown(ctx, err)
	})
	register[ops.List[Worker]](a, operation{
		method: http.MethodGet, path: "/v1/workers", id: "list-workers", tag: tagDestinations, scope: access.ScopeRead,
		summary:     "List workers",
		description: "Those that sent a heartbeat in the last 30 seconds.",
	}, func(ctx context.Context, _ *struct{}) (any, error) { return listOf(a.ops.Workers(ctx)) })
	register[ops.Page[ops.AuditEntry]](a, operation{
		method: http.MethodGet, path: "/v1/audit", id: "list-acts", tag: tagActions, scope: access.ScopeRead, where: "query",
		summary:     "List what operators did",
		description: "The newest first, of commands, API and dashboard: when, who, what, to what, and why. The last 10,000 are kept. An act that failed is not among them.",
	}, func(ctx context.Context, in *auditInput) (any, error) {
		page, err := a.ops.Audit(ctx, ops.AuditQuery{Since: in.Since, Until: in.Until, Who: in.Who, Action: in.Action, Limit: in.Limit, Cursor: in.Cursor})
		if errors.Is(err, ops.ErrCursor) {
			return nil, invalid("query.cursor", "%s", err.Error())
		}
		return page, err
	})
	register[ops.List[Stats]](a, operation{
		method: http.MethodGet, path: "/v1/stats", id: "get-stats", tag: tagDestinations, scope: access.ScopeRead, missing: true, confined: true, where: "query",
		summary:     "Get figures",
		description: "Of each destination: its jobs by status, its backlog, how long the oldest waits, and its breaker. It takes the same time whatever the number of jobs.",
	}, func(ctx context.Context, in *destinationFilter) (any, error) {
		if in.Destination != "" && !jobs.ValidDestination(in.Destination) {
			return nil, badDestination("query.destination")
		}
		return listOf(a.ops.Stats(ctx, in.Destination))
	})
}

// listOf returns the items as a list.
func listOf[T any](items []T, err error) (any, error) { return ops.List[T]{Items: items}, err }
