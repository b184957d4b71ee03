package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/jobs"
)

// destinationOperations are those about destinations, workers and figures.
func (a *api) destinationOperations() {
	register(a, operation{
		method: http.MethodGet, path: "/v1/destinations", id: "list-destinations", tag: tagDestinations, scope: access.ScopeRead,
		summary:     "List destinations",
		description: "Those that are known from the configuration, or because workers serve or served them.",
	}, a.destinations)
	register(a, operation{
		method: http.MethodPost, path: "/v1/destinations/{destination}/pause", id: "pause-destination", tag: tagDestinations, scope: access.ScopeOperate, missing: true, where: "path",
		summary:     "Pause a destination",
		description: "No job of it starts until it is resumed; calls in flight finish, and jobs can still be enqueued. A pause survives restarts and is independent of the circuit breaker; either one stops the jobs.",
	}, func(ctx context.Context, in *pauseInput) (*answer[PausedDestination], error) {
		return a.pause(ctx, in, true)
	})
	register(a, operation{
		method: http.MethodPost, path: "/v1/destinations/{destination}/resume", id: "resume-destination", tag: tagDestinations, scope: access.ScopeOperate, missing: true, where: "path",
		summary:     "Resume a destination",
		description: "Ends the pause of a destination.",
	}, func(ctx context.Context, in *pauseInput) (*answer[PausedDestination], error) {
		return a.pause(ctx, in, false)
	})
	register(a, operation{
		method: http.MethodGet, path: "/v1/workers", id: "list-workers", tag: tagDestinations, scope: access.ScopeRead,
		summary:     "List workers",
		description: "Those that gave a sign of life in the last 30 seconds.",
	}, a.workers)
	register(a, operation{
		method: http.MethodGet, path: "/v1/stats", id: "get-stats", tag: tagDestinations, scope: access.ScopeRead, where: "query",
		summary:     "Get figures",
		description: "Of each destination: its jobs by status, its backlog, how long the oldest waits, and its breaker. It takes the same time whatever the number of jobs.",
	}, a.stats)
}

func (a *api) destinations(ctx context.Context, _ *struct{}) (*answer[List[Destination]], error) {
	found, err := a.statsOfAll(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := a.liveWorkers(ctx)
	if err != nil {
		return nil, err
	}
	out := list[Destination]{Items: make([]Destination, len(found))}
	for i, d := range found {
		out.Items[i] = Destination{Name: d.Destination, WorkersSeenAt: d.WorkersSeenAt, Paused: d.Paused, Backlog: d.Backlog}
		if u, all := workers.Unreached(d.Destination); all {
			out.Items[i].Unreachable = (*Unreachable)(&u)
		}
	}
	return answerOf[List[Destination]](out), nil
}

type pauseInput struct {
	Destination string  `path:"destination" maxLength:"63" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"1 to 63 of a-z, 0-9 and -, starting with a letter or digit" doc:"Name of the destination." example:"deviantart"`
	Body        *Reason `doc:"May be left out."`
}

func (a *api) pause(ctx context.Context, in *pauseInput, pause bool) (*answer[PausedDestination], error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	var changed bool
	var err error
	action := "resume destination"
	if pause {
		action = "pause destination"
		changed, err = a.client.PauseDestination(ctx, in.Destination, jobs.By(by(ctx)), jobs.Because(reason))
	} else {
		changed, err = a.client.ResumeDestination(ctx, in.Destination)
	}
	if errors.Is(err, jobs.ErrUnknownDestination) {
		return nil, notFoundIfUnknown(err)
	}
	access.Audit(ctx, a.log, action, slog.String("target", in.Destination), result(err), slog.String("reason", reason))
	if err != nil {
		return nil, err
	}
	return answerOf[PausedDestination](PausedDestination{Destination: in.Destination, Paused: pause, Changed: changed}), nil
}

func (a *api) workers(ctx context.Context, _ *struct{}) (*answer[List[Worker]], error) {
	found, err := a.client.Workers(ctx)
	if err != nil {
		return nil, err
	}
	return answerOf[List[Worker]](list[jobs.WorkerInfo]{found}), nil
}

// destinationStats is a destination with its breaker.
type destinationStats struct {
	jobs.DestinationStats
	Breaker     breaker.Status        `json:"breaker"`
	Unreachable *jobs.UnreachableInfo `json:"unreachable,omitempty"`
	Alone       *jobs.RefusedAlone    `json:"refused_alone,omitempty"`
}

// destinationFilter is a filter by destination.
type destinationFilter struct {
	Destination string `query:"destination" maxLength:"63" doc:"Only of this destination." example:"deviantart"`
}

func (a *api) stats(ctx context.Context, in *destinationFilter) (*answer[List[Stats]], error) {
	if in.Destination != "" && !jobs.ValidDestination(in.Destination) {
		return nil, badDestination("query.destination")
	}
	var items []destinationStats
	var err error
	if in.Destination == "" {
		items, err = read(ctx, a.cache, "stats with breakers", func(ctx context.Context) ([]destinationStats, error) {
			found, err := a.statsOfAll(ctx)
			if err != nil {
				return nil, err
			}
			return a.withBreakers(ctx, found)
		})
	} else {
		var found []jobs.DestinationStats
		if found, err = a.client.Stats(ctx, in.Destination); err == nil {
			items, err = a.withBreakers(ctx, found)
		}
	}
	if err != nil {
		return nil, err
	}
	return answerOf[List[Stats]](list[destinationStats]{items}), nil
}

// statsOfAll are the cached statistics of all destinations.
func (a *api) statsOfAll(ctx context.Context) ([]jobs.DestinationStats, error) {
	return read(ctx, a.cache, "stats", func(ctx context.Context) ([]jobs.DestinationStats, error) { return a.client.Stats(ctx, "") })
}

// liveWorkers are the cached workers.
func (a *api) liveWorkers(ctx context.Context) (jobs.Workers, error) {
	return read(ctx, a.cache, "workers", a.client.Workers)
}

func (a *api) withBreakers(ctx context.Context, found []jobs.DestinationStats) ([]destinationStats, error) {
	names := make([]string, len(found))
	for i, d := range found {
		names[i] = d.Destination
	}
	breakers, err := a.breakers().ListAll(ctx, a.rdb, names)
	if err != nil {
		return nil, err
	}
	workers, err := a.liveWorkers(ctx)
	if err != nil {
		return nil, err
	}
	alone, err := a.client.RefusedAlone(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := make([]destinationStats, len(found))
	for i, d := range found {
		out[i] = destinationStats{DestinationStats: d, Breaker: breakers[i][0]}
		if u, all := workers.Unreached(d.Destination); all {
			out[i].Unreachable = &u
		}
		if r, refused := alone[d.Destination]; refused {
			out[i].Alone = &r
		}
	}
	return out, nil
}
