package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// BreakerOnly names a breaker by its path.
type BreakerOnly struct {
	Name string `path:"name" maxLength:"192" doc:"The destination; for the breaker of a key destination/key, with the slash written %2F, or the destination with the parameter key." example:"deviantart"`
	Key  string `query:"key" maxLength:"128" doc:"The breaker of this key under the destination." example:"alice"`
}

// breakerOperations are the operations on breakers.
func (a *api) breakerOperations() {
	register(a, operation{
		method: http.MethodGet, path: "/v1/breakers", id: "list-breakers", tag: tagBreakers, scope: access.ScopeRead, where: "query",
		summary:     "List breakers",
		description: "Those of all known destinations, in pages: destinations first, each with its keys that are limited, then keys that met a limit and can be called. One that changes while pages are read may be missed or repeated.",
	}, a.listBreakers)
	register(a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}", id: "get-breaker", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a breaker",
		description: "CLOSED lets all calls through. OPEN lets none through until its time has come. HALF_OPEN lets one call of the whole fleet through, the probe: its success closes the breaker, another rate-limited answer opens it again.",
	}, a.getBreaker)
	register(a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}/incidents", id: "get-breaker-incidents", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a breaker's incidents",
		description: "The last ones, the oldest first, the one that lasts included. 200 are kept, of a key 20.",
	}, a.incidents)
	register(a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}/history", id: "get-breaker-history", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get a breaker's transitions",
		description: "The last ones, the oldest first.",
	}, a.breakerHistory)
	register(a, operation{
		method: http.MethodPost, path: "/v1/breakers/{name}/trip", id: "trip-breaker", tag: tagBreakers, scope: access.ScopeOperate, missing: true, where: "path",
		summary:     "Open a breaker by hand",
		description: "No worker calls the destination until the time is over, or until it is reset. Jobs stay in their queue; calls in flight finish. After the time one call tests whether the destination answers.",
	}, a.trip)
	register(a, operation{
		method: http.MethodPost, path: "/v1/breakers/{name}/reset", id: "reset-breaker", tag: tagBreakers, scope: access.ScopeOperate, missing: true, where: "path",
		summary:     "Close a breaker by hand",
		description: "Calls resume slowly: 1, 2, 4 … in flight; a second reset ends that. If the API still limits, the next 429 open it again.",
	}, a.reset)
}

// name returns the name of the breaker; an error if its destination is unknown.
func (in *BreakerOnly) name(ctx context.Context, a *api) (string, error) {
	name := in.Name
	if in.Key != "" {
		if strings.Contains(name, "/") {
			return "", invalid("query.key", "the path names a key already; give one of the two")
		}
		if !jobs.ValidName(in.Key) {
			return "", invalid("query.key", "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit")
		}
		name += "/" + in.Key
	}
	destination, _, err := breaker.ParseName(name)
	if err != nil {
		return "", invalid("path.name", "must be the name of a destination (1 to 63 of a-z, 0-9 and -), or destination/key with the slash written %%2F")
	}
	return name, notFoundIfUnknown(a.mustKnow(ctx, destination))
}

// notFoundIfUnknown turns an unknown destination in a path into 404.
func notFoundIfUnknown(err error) error {
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok {
		return newProblem(http.StatusNotFound, "destination %s", unknownDestination(unknown))
	}
	return err
}

// breakersInput selects a page of breakers.
type breakersInput struct {
	Destination string `query:"destination" maxLength:"63" doc:"Only of this destination and its keys." example:"deviantart"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most." example:"100"`
	Cursor      string `query:"cursor" maxLength:"256" doc:"Field next of the page before; leave it out for the first one." example:""`
}

func (a *api) listBreakers(ctx context.Context, in *breakersInput) (*answer[Page[Breaker]], error) {
	var items []breaker.Status
	var err error
	if in.Destination != "" {
		if !jobs.ValidDestination(in.Destination) {
			return nil, badDestination("query.destination")
		}
		if err := a.mustKnow(ctx, in.Destination); err != nil {
			return nil, err
		}
		items, err = a.breakers().List(ctx, a.rdb, in.Destination)
	} else {
		items, err = read(ctx, a.cache, "breakers", a.allBreakers)
	}
	if err != nil {
		return nil, err
	}
	items, next, err := explain.PageOfBreakers(items, in.Cursor, in.Limit, time.Now())
	if err != nil {
		return nil, invalid("query.cursor", "%s", err.Error())
	}
	return answerOf[Page[Breaker]](page[breaker.Status]{items, next}), nil
}

func (a *api) allBreakers(ctx context.Context) ([]breaker.Status, error) {
	known, err := a.client.Destinations(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(known))
	for i, d := range known {
		names[i] = d.Name
	}
	found, err := a.breakers().ListAll(ctx, a.rdb, names)
	return append([]breaker.Status{}, slices.Concat(found...)...), err
}

func (a *api) getBreaker(ctx context.Context, in *BreakerOnly) (*answer[Breaker], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	b, err := explain.ReadBreaker(ctx, a.rdb, a.client, name)
	if err != nil {
		return nil, err
	}
	return answerOf[Breaker](b), nil
}

type incidentsInput struct {
	BreakerOnly
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many at most." example:"50"`
}

func (a *api) incidents(ctx context.Context, in *incidentsInput) (*answer[List[Incident]], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	found, err := a.breakers().Incidents(ctx, a.rdb, name, in.Limit)
	if err != nil {
		return nil, err
	}
	return answerOf[List[Incident]](list[breaker.Incident]{append([]breaker.Incident{}, found...)}), nil
}

type breakerHistoryInput struct {
	BreakerOnly
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many at most." example:"50"`
}

func (a *api) breakerHistory(ctx context.Context, in *breakerHistoryInput) (*answer[List[BreakerEvent]], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	found, err := a.breakers().History(ctx, a.rdb, name, in.Limit)
	if err != nil {
		return nil, err
	}
	return answerOf[List[BreakerEvent]](list[breaker.Event]{append([]breaker.Event{}, found...)}), nil
}

// Trip is the body of opening a breaker by hand.
type Trip struct {
	For    string `json:"for,omitempty" minLength:"1" maxLength:"32" doc:"For how long: 30s, 10m, 2h, 1d. Until it is reset unless given." example:"10m"`
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"Why, for the history and for other operators." example:"maintenance"`
}

type tripInput struct {
	BreakerOnly
	Body *Trip `doc:"May be left out."`
}

func (a *api) trip(ctx context.Context, in *tripInput) (*answer[Breaker], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	o := breaker.TripOptions{By: by(ctx)}
	if b := in.Body; b != nil {
		o.Reason = b.Reason
		if b.For != "" {
			if o.For, err = config.ParseDuration(b.For); err != nil {
				return nil, invalid("body.for", "%s", err.Error())
			}
			if o.For < time.Millisecond {
				return nil, invalid("body.for", "must be more than 0, such as 10m; leave it out for until it is reset")
			}
		}
	}
	status, err := a.breakers().Trip(ctx, a.rdb, name, o)
	length := "until it is reset"
	if o.For > 0 {
		length = "for " + o.For.String()
	}
	access.Audit(ctx, a.log, "trip breaker", slog.String("target", name), slog.String("for", length), result(err), slog.String("reason", o.Reason))
	if err != nil {
		return nil, err
	}
	return answerOf[Breaker](status), nil
}

type resetInput struct {
	BreakerOnly
	Body *Reason `doc:"May be left out."`
}

func (a *api) reset(ctx context.Context, in *resetInput) (*answer[Breaker], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	status, err := a.breakers().Reset(ctx, a.rdb, name, by(ctx))
	access.Audit(ctx, a.log, "reset breaker", slog.String("target", name), result(err), slog.String("reason", reason))
	if err != nil {
		return nil, err
	}
	return answerOf[Breaker](status), nil
}

func badDestination(location string) *Problem {
	return invalid(location, "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit")
}
