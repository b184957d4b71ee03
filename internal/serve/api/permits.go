package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/permits"
	"github.com/tidegate/tidegate/jobs"
)

// mostWait bounds Prefer: wait.
const mostWait = 60 * time.Second

// AskPermit is the body of a request for a permit.
type AskPermit struct {
	Destination string `json:"destination" maxLength:"63" pattern:"^[a-z0-9][a-z0-9-]*$" doc:"The API that is to be called, one that is known." example:"deviantart"`
	Key         string `json:"key,omitempty" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._:@-]*$" doc:"Whose budget it is inside the destination, such as a user: a name, never a token." example:"alice"`
	Cost        int    `json:"cost,omitempty" minimum:"1" maximum:"1000000" doc:"What the call takes of each window of the declared limits; 1 unless given." example:"1"`
	Lease       string `json:"lease,omitempty" maxLength:"20" doc:"How long the call may last, up to 1h; the destination's probe timeout unless given. Then the permit ends without a report." example:"2m"`

	Costs   map[string]int  `json:"costs,omitempty" maxProperties:"8" doc:"What the call takes of named limits, by their units; of others their estimate." example:"{\"tokens\":1200}"`
	Payload json.RawMessage `json:"payload,omitempty" doc:"The call's payload, if estimates or keys of named limits need it. It is not kept." example:"{\"model\":\"large\"}"`
}

// Permit is a permit for one call.
type Permit struct {
	ID          string    `json:"id" doc:"To report it." example:"3OAXNYOHX2EZV3FLPRVW2Q4NNE"`
	Destination string    `json:"destination" doc:"The API that may be called once." example:"deviantart"`
	Key         string    `json:"key" doc:"The key that was asked for; empty for none." example:"alice"`
	ExpiresAt   time.Time `json:"expires_at" doc:"The call must be over by then: its permit ends." example:"2030-01-31T14:35:00Z"`
	Probe       bool      `json:"probe" doc:"True if the call tests whether the API accepts calls again; no other is made meanwhile." example:"false"`
}

// PermitReport is the body of a report.
type PermitReport struct {
	Status     int               `json:"status,omitempty" minimum:"100" maximum:"599" doc:"The HTTP status of the API's response. Either this or outcome." example:"200"`
	Headers    map[string]string `json:"headers,omitempty" maxProperties:"64" doc:"Its headers, in which limits are looked for. Send none that hold secrets." example:"{\"Retry-After\":\"30\"}"`
	Outcome    string            `json:"outcome,omitempty" enum:"success,limited,failure,unauthorized,neutral,unused" doc:"What the call came to, if there is no HTTP response; unused: it was not made." example:"success"`
	RetryAfter string            `json:"retry_after,omitempty" maxLength:"20" doc:"How long the API said to wait, of the outcome limited." example:"30s"`
	Cost       int               `json:"cost,omitempty" minimum:"1" maximum:"1000000" doc:"What the call really took of the declared limits." example:"3"`
	Costs      map[string]int    `json:"costs,omitempty" maxProperties:"8" doc:"What it really took of named limits, by their units." example:"{\"tokens\":950}"`
	Error      string            `json:"error,omitempty" maxLength:"500" doc:"What went wrong, for the log." example:""`
}

type permitInput struct {
	Prefer string `header:"Prefer" maxLength:"100" doc:"wait=30 waits up to 30 seconds for a permit; 60 at most." example:"wait=30"`
	Body   AskPermit
}

type permitReportInput struct {
	ID   string `path:"id" maxLength:"64" doc:"The permit." example:"3OAXNYOHX2EZV3FLPRVW2Q4NNE"`
	Body PermitReport
}

// Reported is the response to a report.
type Reported struct {
	ID string `json:"id" doc:"The permit." example:"3OAXNYOHX2EZV3FLPRVW2Q4NNE"`
}

func (a *api) permitOperations() {
	register[Permit](a, operation{
		method: http.MethodPost, path: "/v1/permits", id: "acquire-permit", tag: tagPermits, scope: access.ScopeEnqueue, confined: true, missing: true,
		timeout: mostWait + lookTimeout,
		summary: "Acquire a permit for one call",
		description: "For a program that calls the API itself, such as one that streams or uploads: its call counts under the breaker, limits and keys of the destination, like calls of jobs. " +
			"Report what it came to. A permit that is refused is 429 with Retry-After, `reason` and `until`; with `Prefer: wait=30` the request waits for it, beside the jobs.",
	}, a.acquirePermit)
	register[Reported](a, operation{
		method: http.MethodPost, path: "/v1/permits/{id}/report", id: "report-permit", tag: tagPermits, scope: access.ScopeEnqueue, missing: true, confined: true,
		summary:     "Report what a call came to",
		description: "By the status and headers of the API's response, or by an outcome. The first report counts; without one the permit ends with its lease.",
	}, a.reportPermit)
}

func (a *api) acquirePermit(ctx context.Context, in *permitInput) (any, error) {
	if a.permits == nil {
		return nil, newProblem(http.StatusServiceUnavailable, "permits are not served here")
	}
	r := permits.Request{Destination: in.Body.Destination, Key: in.Body.Key, Cost: in.Body.Cost, Costs: in.Body.Costs, Payload: in.Body.Payload, Wait: waitOf(in.Prefer), Owner: owner(ctx)}
	if in.Body.Lease != "" {
		var err error
		if r.Lease, err = config.ParseDuration(in.Body.Lease); err != nil || r.Lease < time.Second || r.Lease > permits.MaxLease {
			return nil, invalid("body.lease", "must be from 1s to 1h, such as 2m")
		}
	}
	if err := checkCosts(r.Costs); err != nil {
		return nil, err
	}
	id, _ := access.From(ctx)
	if err := elsewhere(id, r.Destination, r.Key); err != nil {
		return nil, err
	}
	r.Confined = !id.May(r.Destination, "")
	if err := a.ops.Known(ctx, r.Destination); err != nil {
		return nil, err
	}
	if _, p := a.takeQuota(ctx, nil, 1); p != nil {
		return nil, p
	}
	asked := ctx
	if r.Wait > 0 {
		waiting, leave, p := a.startWaiting(ctx)
		if p != nil {
			return nil, p
		}
		defer leave()
		asked = waiting
	}
	got, err := a.permits.Grant(asked, r)
	switch {
	case err != nil && asked.Err() != nil && ctx.Err() == nil:
		return nil, retryLater("this instance stops; ask another one")
	case errors.Is(err, permits.ErrFull), errors.Is(err, breaker.ErrClosed):
		return nil, retryLater(err.Error())
	case err != nil:
		return nil, permitProblem(err)
	}
	return Permit{ID: got.ID, Destination: r.Destination, Key: r.Key, ExpiresAt: got.Until.UTC(), Probe: got.Probe}, nil
}

// unitForm matches units of named limits.
var unitForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// checkCosts refuses costs by units that no named limit can have.
func checkCosts(costs map[string]int) error {
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		if !unitForm.MatchString(unit) {
			return invalid("body.costs", "a unit has 1 to 63 of a-z, 0-9 and '-', and does not start with '-'")
		} else if c := costs[unit]; c < 1 || c > jobs.MaxCosts {
			return invalid("body.costs."+unit, "must be from 1 to %d, is %d", jobs.MaxCosts, c)
		}
	}
	return nil
}

func (a *api) reportPermit(ctx context.Context, in *permitReportInput) (any, error) {
	b := in.Body
	if (b.Status == 0) == (b.Outcome == "") {
		return nil, invalid("body", "must have either status or outcome")
	}
	if a.permits == nil {
		return nil, newProblem(http.StatusServiceUnavailable, "permits are not served here")
	}
	if err := checkCosts(b.Costs); err != nil {
		return nil, err
	}
	r := permits.Report{Status: b.Status, Headers: http.Header{}, Outcome: b.Outcome, Cost: b.Cost, Costs: b.Costs, Owner: owner(ctx)}
	for name, value := range b.Headers {
		r.Headers.Set(name, value)
	}
	if b.RetryAfter != "" {
		var err error
		if r.Retry, err = config.ParseDuration(b.RetryAfter); err != nil {
			return nil, invalid("body.retry_after", "%s", err.Error())
		} else if r.Retry < 0 {
			return nil, invalid("body.retry_after", "must be 0s or longer, such as 30s")
		}
	}
	switch err := a.permits.Report(ctx, in.ID, r); {
	case errors.Is(err, permits.ErrNotFound):
		return nil, newProblem(http.StatusNotFound, "%s", err.Error())
	case err != nil:
		return nil, err
	}
	if b.Error != "" {
		a.log.InfoContext(ctx, "the call of a permit failed", "permit", in.ID, "error", b.Error)
	}
	return Reported{ID: in.ID}, nil
}

// owner is the name of the caller's token; "" without tokens.
func owner(ctx context.Context) string {
	id, _ := access.From(ctx)
	return id.By()
}

var preferWait = regexp.MustCompile(`(?i)(?:^|[,;\s])wait\s*=\s*"?(\d{1,4})`)

// waitOf reads the preference wait of RFC 7240, in seconds.
func waitOf(prefer string) time.Duration {
	m := preferWait.FindStringSubmatch(prefer)
	if m == nil {
		return 0
	}
	seconds, _ := strconv.Atoi(m[1]) // digits
	return min(time.Duration(seconds)*time.Second, mostWait)
}

// permitProblem words a refusal.
func permitProblem(err error) error {
	if never, ok := errors.AsType[*breaker.CostError](err); ok {
		return invalid("body.cost", "%s", never.Error())
	}
	if unknown, ok := errors.AsType[*permits.UnknownDrawError](err); ok {
		return invalid("body.costs", "%s", unknown.Error())
	}
	if errors.Is(err, permits.ErrNoMember) {
		return invalid("body.key", "%s", err.Error())
	}
	open, ok := errors.AsType[*breaker.OpenError](err)
	if !ok {
		return err
	}
	p := newProblem(http.StatusTooManyRequests, "%s", open.Error())
	p.Reason = permitReason(open)
	if !open.Until.IsZero() {
		until := open.Until.UTC()
		p.Until = &until
	}
	p.retryAfter = max(1, int(math.Ceil(open.RetryAfter.Seconds())))
	return p
}

// permitReason returns the code of a refusal. It is the code of a job that waits for the same cause, if any.
func permitReason(open *breaker.OpenError) string {
	switch {
	case open.Capacity() || open.State == breaker.Closed:
		return open.Cause
	case open.State == breaker.HalfOpen:
		return "breaker_probing"
	case open.Cause == breaker.CauseManual:
		return "breaker_tripped"
	case open.Cause == breaker.CauseCredentials:
		return "credentials"
	}
	return "breaker_open"
}
