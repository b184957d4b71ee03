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

// limitOperations are the operations on the limits of APIs.
func (a *api) limitOperations() {
	register(a, operation{
		method: http.MethodGet, path: "/v1/limits", id: "list-limits", tag: tagBreakers, scope: access.ScopeRead, where: "query",
		summary:     "List limits",
		description: "Those of all known destinations, and of the keys that have announced or learned ones. A page may have fewer items than asked for, and a next one all the same.",
	}, a.listLimits)
	register(a, operation{
		method: http.MethodGet, path: "/v1/limits/{name}", id: "get-limits", tag: tagBreakers, scope: access.ScopeRead, missing: true, where: "path",
		summary:     "Get the limits of a destination or key",
		description: "Declared limits are configured, announced ones are what the API said with its answers, and a learned one is what refusals without a hint have taught.",
	}, a.getLimits)
	register(a, operation{
		method: http.MethodPost, path: "/v1/limits/{name}/forget", id: "forget-limits", tag: tagBreakers, scope: access.ScopeOperate, missing: true, where: "path",
		summary:     "Forget what was learned and announced",
		description: "For all workers; the next responses teach it anew. Declared limits stay, and so does the state of the breaker.",
	}, a.forgetLimits)
}

type limitsInput struct {
	Destination string `query:"destination" maxLength:"63" doc:"Only of this destination and its keys." example:"deviantart"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many at most." example:"100"`
	Cursor      string `query:"cursor" maxLength:"128" doc:"Field next of the page before; leave it out for the first one." example:""`
}

func (a *api) listLimits(ctx context.Context, in *limitsInput) (*answer[Page[Limits]], error) {
	var names []string
	if in.Destination != "" {
		if !jobs.ValidDestination(in.Destination) {
			return nil, badDestination("query.destination")
		}
		if err := a.mustKnow(ctx, in.Destination); err != nil {
			return nil, err
		}
		names = []string{in.Destination}
	} else {
		known, err := a.client.Destinations(ctx)
		if err != nil {
			return nil, err
		}
		for _, d := range known {
			names = append(names, d.Name)
		}
	}
	items, next, err := a.breakers().ListLimits(ctx, a.rdb, names, in.Cursor, in.Limit)
	if errors.Is(err, breaker.ErrInvalidCursor) {
		return nil, invalid("query.cursor", "%s", breaker.ErrInvalidCursor.Error())
	}
	if err != nil {
		return nil, err
	}
	return answerOf[Page[Limits]](page[breaker.Limits]{items, next}), nil
}

func (a *api) getLimits(ctx context.Context, in *BreakerOnly) (*answer[Limits], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	found, err := a.breakers().Limits(ctx, a.rdb, name)
	if err != nil {
		return nil, err
	}
	return answerOf[Limits](found), nil
}

func (a *api) forgetLimits(ctx context.Context, in *resetInput) (*answer[Limits], error) {
	name, err := in.name(ctx, a)
	if err != nil {
		return nil, err
	}
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	_, err = a.breakers().ForgetLimits(ctx, a.rdb, name, by(ctx))
	access.Audit(ctx, a.log, "forget limits", slog.String("target", name), result(err), slog.String("reason", reason))
	if err != nil {
		return nil, err
	}
	return a.getLimits(ctx, &in.BreakerOnly)
}
