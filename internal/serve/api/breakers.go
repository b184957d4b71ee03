package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// BreakerOnly names a breaker by its path.
type BreakerOnly struct {
	Name string `path:"name" maxLength:"192" doc:"The destination; for the breaker of a key destination/key, with the slash written %2F, or the destination with the parameter key." example:"deviantart"`
	Key  string `query:"key" maxLength:"128" doc:"The breaker of this key under the destination." example:"alice"`
}

// named is an input that names a breaker.
type named interface {
	name(ctx context.Context, a *api) (string, error)
}

// registerNamed is [register] of an operation on a breaker that the path names.
func registerNamed[D any, I any, P interface {
	*I
	named
}](a *api, o operation, do func(ctx context.Context, name string, in *I) (any, error)) {
	o.tag, o.missing, o.where, o.confined = tagBreakers, true, "path", true
	register[D](a, o, func(ctx context.Context, in *I) (any, error) {
		name, err := P(in).name(ctx, a)
		if err != nil {
			return nil, err
		}
		return do(ctx, name, in)
	})
}

// pageInput selects a page of breakers or limits.
type pageInput struct {
	Destination string `query:"destination" maxLength:"63" doc:"Only of this destination and its keys." example:"deviantart"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most." example:"100"`
	Cursor      string `query:"cursor" maxLength:"256" doc:"Field next of the page before; leave it out for the first one." example:""`
}

type incidentsInput struct {
	BreakerOnly
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50" doc:"How many at most." example:"50"`
}

type transitionsInput struct {
	BreakerOnly
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"How many at most." example:"50"`
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

type resetInput struct {
	BreakerOnly
	Body *Reason `doc:"May be left out."`
}

// LimitName names a limit by its path.
type LimitName struct {
	Name string `path:"name" maxLength:"63" pattern:"^[a-z0-9][a-z0-9-]*$" patternDescription:"1 to 63 of a-z, 0-9 and -, starting with a letter or digit" doc:"Name of the destination, or of a limit that destinations share." example:"deviantart"`
}

// NewLimit is the body of setting a limit.
type NewLimit struct {
	Rate   string     `json:"rate" minLength:"1" maxLength:"500" doc:"Its windows, as of DESTINATION_<i>_RATE; off: no limit." example:"5/1s"`
	For    string     `json:"for,omitempty" minLength:"1" maxLength:"32" doc:"For how long: 30s, 10m, 2h, 1d. Until it is unset unless given." example:"10m"`
	Until  *time.Time `json:"until,omitempty" doc:"When it ends, in place of for." example:"2030-01-31T15:00:00Z"`
	Reason string     `json:"reason,omitempty" maxLength:"500" doc:"Why, for other operators and the audit." example:"the API asked for less"`
}

type setInput struct {
	LimitName
	Body NewLimit
}

type unsetInput struct {
	LimitName
	Body *Reason `doc:"May be left out."`
}

// breakerOperations are the operations on breakers and limits.
func (a *api) breakerOperations() {
	register[ops.Page[Breaker]](a, operation{
		method: http.MethodGet, path: "/v1/breakers", id: "list-breakers", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "query", confined: true,
		summary:     "List breakers",
		description: "Those of all known destinations, in pages: destinations first, each with its keys that are limited, then keys that met a limit and can be called. One that changes while pages are read may be missed or repeated.",
	}, pageOf(a.ops.Breakers))
	registerNamed[Breaker](a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}", id: "get-breaker", scope: access.ScopeRead,
		summary:     "Get a breaker",
		description: "CLOSED lets all calls through. OPEN lets none through until its time has come. HALF_OPEN lets one call of the whole fleet through, the probe: its success closes the breaker, another rate-limited answer opens it again.",
	}, func(ctx context.Context, name string, _ *BreakerOnly) (any, error) { return a.ops.Breaker(ctx, name) })
	registerNamed[ops.List[Incident]](a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}/incidents", id: "get-breaker-incidents", scope: access.ScopeRead,
		summary:     "Get a breaker's incidents",
		description: "The last ones, the oldest first, the one that lasts included. 200 are kept, of a key 20.",
	}, func(ctx context.Context, name string, in *incidentsInput) (any, error) {
		return a.ops.Incidents(ctx, name, in.Limit)
	})
	registerNamed[ops.List[BreakerEvent]](a, operation{
		method: http.MethodGet, path: "/v1/breakers/{name}/history", id: "get-breaker-history", scope: access.ScopeRead,
		summary:     "Get a breaker's transitions",
		description: "The last ones, the oldest first.",
	}, func(ctx context.Context, name string, in *transitionsInput) (any, error) {
		return a.ops.Transitions(ctx, name, in.Limit)
	})
	registerNamed[Breaker](a, operation{
		method: http.MethodPost, path: "/v1/breakers/{name}/trip", id: "trip-breaker", scope: access.ScopeOperate,
		summary:     "Open a breaker by hand",
		description: "No worker calls the destination until the time is over, or until it is reset. Jobs stay in their queue; calls in flight finish. After the time one call tests whether the destination answers.",
	}, a.trip)
	registerNamed[Breaker](a, operation{
		method: http.MethodPost, path: "/v1/breakers/{name}/reset", id: "reset-breaker", scope: access.ScopeOperate,
		summary:     "Close a breaker by hand",
		description: "Calls resume slowly: 1, 2, 4 … in flight; a second reset ends that. If the API still limits, the next 429 open it again.",
	}, func(ctx context.Context, name string, in *resetInput) (any, error) {
		return a.ops.ActOnBreaker(ctx, ops.Reset, name, 0, why(ctx, in.Body))
	})

	register[ops.Page[Limits]](a, operation{
		method: http.MethodGet, path: "/v1/limits", id: "list-limits", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "query", confined: true,
		summary:     "List limits",
		description: "Those of all known destinations, and of the keys that have announced or learned ones. A page may have fewer items than asked for, and a next one all the same.",
	}, pageOf(a.ops.ListLimits))
	registerNamed[Limits](a, operation{
		method: http.MethodGet, path: "/v1/limits/{name}", id: "get-limits", scope: access.ScopeRead,
		summary:     "Get the limits of a destination or key",
		description: "Declared limits are configured, announced ones are what the API said with its answers, and a learned one is what refusals without a hint have taught.",
	}, func(ctx context.Context, name string, _ *BreakerOnly) (any, error) { return a.ops.Limits(ctx, name) })
	register[Limits](a, operation{
		method: http.MethodPut, path: "/v1/limits/{name}/override", id: "set-limit", tag: tagBreakers, scope: access.ScopeOperate, missing: true, where: "path", confined: true,
		summary:     "Set a limit above the configuration",
		description: "It stands above the configured rate until its time is over or it is unset, survives restarts, and replaces one that was set before. All workers take it up within 2 seconds. Announced and learned limits, and the limits of keys, hold beside it.",
	}, a.setLimit)
	register[Limits](a, operation{
		method: http.MethodDelete, path: "/v1/limits/{name}/override", id: "unset-limit", tag: tagBreakers, scope: access.ScopeOperate, missing: true, where: "path", confined: true,
		summary:     "End a limit that was set",
		description: "The configured limit holds again, within 2 seconds. Nothing happens if none was set.",
	}, func(ctx context.Context, in *unsetInput) (any, error) {
		l, _, err := a.ops.UnsetLimit(ctx, in.Name, why(ctx, in.Body))
		return l, notFoundIfUnknown(ctx, err)
	})
	registerNamed[Limits](a, operation{
		method: http.MethodPost, path: "/v1/limits/{name}/forget", id: "forget-limits", scope: access.ScopeOperate,
		summary:     "Forget what was learned and announced",
		description: "For all workers; the next responses teach it anew. Declared limits stay, and so does the state of the breaker.",
	}, func(ctx context.Context, name string, in *resetInput) (any, error) {
		if _, err := a.ops.ForgetLimits(ctx, name, why(ctx, in.Body)); err != nil {
			return nil, err
		}
		return a.ops.Limits(ctx, name)
	})
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
	_, _, err := a.ops.KnownBreaker(ctx, name)
	if errors.Is(err, ops.ErrName) {
		return "", invalid("path.name", "must be the name of a destination (1 to 63 of a-z, 0-9 and -), or destination/key with the slash written %%2F")
	}
	return name, notFoundIfUnknown(ctx, err)
}

// notFoundIfUnknown turns an unknown destination in a path into 404.
func notFoundIfUnknown(ctx context.Context, err error) error {
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok {
		return newProblem(http.StatusNotFound, "destination %s", unknownDestination(ctx, unknown))
	}
	return err
}

// pageOf returns the operation that reads pages.
func pageOf[T any](read func(ctx context.Context, destination, cursor string, limit int) (ops.Page[T], error)) func(context.Context, *pageInput) (any, error) {
	return func(ctx context.Context, in *pageInput) (any, error) {
		if in.Destination != "" && !jobs.ValidDestination(in.Destination) {
			return nil, badDestination("query.destination")
		}
		page, err := read(ctx, in.Destination, in.Cursor, in.Limit)
		if errors.Is(err, ops.ErrCursor) {
			return nil, invalid("query.cursor", "%s", err.Error())
		}
		return page, err
	}
}

func (a *api) trip(ctx context.Context, name string, in *tripInput) (any, error) {
	var length time.Duration
	var reason Reason
	if b := in.Body; b != nil {
		reason.Reason = b.Reason
		var err error
		if length, err = lengthOf(b.For, "it is reset"); err != nil {
			return nil, err
		}
	}
	return a.ops.ActOnBreaker(ctx, ops.Trip, name, length, why(ctx, &reason))
}

// lengthOf parses a field for; 0 for "", which means until its end by hand.
func lengthOf(text, end string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	length, err := config.ParseDuration(text)
	if err != nil {
		return 0, invalid("body.for", "%s", err.Error())
	}
	if length < time.Millisecond {
		return 0, invalid("body.for", "must be more than 0, such as 10m; leave it out for until %s", end)
	}
	return length, nil
}

func (a *api) setLimit(ctx context.Context, in *setInput) (any, error) {
	b := in.Body
	if err := ops.CheckRate(b.Rate); err != nil {
		return nil, invalid("body.rate", "%s", err.Error())
	}
	length, err := lengthOf(b.For, "it is unset")
	if err != nil {
		return nil, err
	}
	switch {
	case b.Until != nil && b.For != "":
		return nil, invalid("body.until", "is given beside for; give one of the two")
	case b.Until != nil && !b.Until.After(time.Now()):
		return nil, invalid("body.until", "has passed")
	}
	l, err := a.ops.SetLimit(ctx, in.Name, b.Rate, length, b.Until, why(ctx, &Reason{b.Reason}))
	return l, notFoundIfUnknown(ctx, err)
}

func badDestination(location string) *Problem {
	return invalid(location, "must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit")
}
