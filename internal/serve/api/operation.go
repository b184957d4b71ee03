package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/jobjson"
)

// operation is an operation of the API.
type operation struct {
	method, path string
	id           string // unique, for generated clients
	tag          string
	summary      string
	description  string
	scope        access.Scope  // "": everyone
	timeout      time.Duration // of the whole operation; 0: lookTimeout
	where        at            // location of the input in errors; "": the body
	conflict     bool          // 409 is possible
	missing      bool          // 404 is possible
	gone         bool          // 410 is possible
	confined     bool          // serves confined tokens, and confines them; others refuse them

	holds func(r *http.Request) int64 // memory of lists until the response; nil for none
}

// answer is the response of an operation: JSON with the schema of D.
type answer[D any] struct{ Body shown[D] }

// register adds an operation with the input I, whose response D describes.
func register[D, I any](a *api, o operation, do func(ctx context.Context, in *I) (any, error)) {
	op := a.describe(o)
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(ctx)
		var p *Problem
		if o.scope != "" {
			p = a.may(ctx.Context(), o.scope)
		}
		if id, _ := access.From(ctx.Context()); p == nil && !o.confined {
			if err := access.CheckConfined(id); err != nil {
				p = newProblem(err.Status, "%s", err.Message)
			}
		}
		if p == nil {
			p = checkQuery(r)
		}
		if p == nil && o.holds != nil {
			if leave := a.lists.enter(ctx.Context(), o.holds(r)); leave != nil {
				defer leave()
			} else {
				p = busyLists()
			}
		}
		if p != nil {
			p.write(w)
			return
		}
		next(ctx)
	}}
	where, timeout := cmp.Or(o.where, "body"), cmp.Or(o.timeout, lookTimeout)
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*answer[D], error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		out, err := do(ctx, in)
		if err != nil {
			return nil, a.problem(ctx, where, err)
		}
		return &answer[D]{Body: shown[D]{out}}, nil
	})
}

func busyLists() *Problem {
	p := newProblem(http.StatusServiceUnavailable, "too many lists are being read here at the moment; try again in a second")
	p.retryAfter = 1
	return p
}

// describe returns the operation for the document.
func (a *api) describe(o operation) huma.Operation {
	op := huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Tags: []string{o.tag}, Summary: o.summary,
		Description:                  o.description + "\n\nScope: `" + string(o.scope) + "`.",
		Security:                     []map[string][]string{{securityName: {string(o.scope)}}},
		RejectUnknownQueryParameters: true,
		BodyReadTimeout:              -1, // it has been read
		Errors:                       []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}
	if o.scope == "" {
		op.Description, op.Security = o.description, []map[string][]string{}
		op.Errors = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	}
	if o.gone {
		op.Errors = append(op.Errors, http.StatusGone)
	}
	if o.missing {
		op.Errors = append(op.Errors, http.StatusNotFound)
	}
	if o.conflict {
		op.Errors = append(op.Errors, http.StatusConflict)
	}
	if o.method != http.MethodGet {
		op.Errors = append(op.Errors, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusUnprocessableEntity)
	slices.Sort(op.Errors)
	op.Errors = slices.Compact(op.Errors)
	return op
}

// repeatable are the parameters that may be given more than once.
var repeatable = []string{"status", "type", "label"}

// checkQuery refuses parameters without a value, such as of an unset variable in a script, and
// repeated parameters.
func checkQuery(r *http.Request) *Problem {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(http.StatusBadRequest, "the query of the URL is malformed")
	}
	p := newProblem(http.StatusUnprocessableEntity, "the query cannot be accepted")
	for name, values := range query {
		switch {
		case slices.Contains(values, ""):
			p.Errors = append(p.Errors, ProblemField{"query." + name, "is empty; give it a value or leave it out"})
		case len(values) > 1 && !slices.Contains(repeatable, name):
			p.Errors = append(p.Errors, ProblemField{"query." + name, "is given " + strconv.Itoa(len(values)) + " times"})
		}
	}
	if len(p.Errors) == 0 {
		return nil
	}
	slices.SortFunc(p.Errors, byLocation)
	p.Errors = p.Errors[:min(len(p.Errors), jobjson.MostErrors)]
	return p
}
