package httpdest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// MaxRulesBody is how much of an answer's body Rules see, in bytes.
const MaxRulesBody = 256 << 10

// Rules decide the outcome of a call by its answer.
type Rules interface {
	// Decide returns the decision on an answer. If no rule matches, ok is false, and only the decision's Budgets
	// count. Many goroutines call it at once, and their jobs wait for it.
	Decide(a Answered) (d Decision, ok bool)
}

// Answered is what Rules see of an answer. They must not change it.
type Answered struct {
	// Job that was called.
	Job    *jobs.Job
	Status int
	Header http.Header
	// Body is the beginning of the answer's body, at most MaxRulesBody; nil if it could not be read. If the body of a
	// 2xx broke off or is longer and no rule matches, the call failed, and the job's policy may retry it.
	Body []byte
	// Received is when the header arrived.
	Received time.Time
}

// Decision is the outcome of a call that Rules, or the API itself, decided.
type Decision struct {
	Then Then
	// Wait for ThenLimited and ThenReschedule; 0: from the headers, or else unknown. Of ThenAccepted it is within which
	// time the API reports the result; 0: jobs.DefaultWithin.
	Wait time.Duration
	// Extend, for ThenReschedule, is how much later the job expires.
	Extend time.Duration
	// Scope for ThenLimited and ThenUnauthorized; ScopeUnknown: from headers and credentials.
	Scope jobs.Scope
	// By names the rule and its reason, such as "rule 2: secondary limit". It is shown with
	// the job.
	By string
	// Cost is the real cost of the call, to which its charge on declared limits is corrected; nil if the answer does
	// not say it. A refused call keeps its charge.
	Cost *float64
	// Output of the job, for ThenOK, as JSON; nil for none. See jobs.Job.Output.
	Output json.RawMessage
	// Budgets are announced by the response in fields of the API's own, each with Name and Reset.
	Budgets []jobs.Budget
}

// Then is what an answer means for the job.
type Then string

// The outcomes of a Decision.
const (
	// ThenOK completes the job.
	ThenOK Then = "ok"
	// ThenLimited is jobs.RateLimited.
	ThenLimited Then = "limited"
	// ThenRetry is a failure that the job's policy may retry.
	ThenRetry Then = "retry"
	// ThenFail is jobs.Discard.
	ThenFail Then = "fail"
	// ThenReschedule is jobs.Reschedule.
	ThenReschedule Then = "reschedule"
	// ThenAccepted is jobs.Accepted.
	ThenAccepted Then = "accepted"
	// ThenUnauthorized is jobs.Unauthorized.
	ThenUnauthorized Then = "unauthorized"
)

// OutcomeHeader is the header in which your own API decides; see Options.TrustOutcome.
const OutcomeHeader = "Tidegate-Outcome"

// bareTime matches a parameter that is a duration without quotes, which RFC 9651 has not.
var bareTime = regexp.MustCompile(`=([0-9][0-9.]*[a-z][0-9a-z.]*)`)

// announced returns the decision of the API itself, if it is trusted with one: a token with
// parameters (RFC 9651) such as "limited; after=60; scope=key", "reschedule; after=60; extend=120" or "accepted; within=1h"; a time may
// also be a text such as "1m30s".
// What is not valid is ignored.
func (h *Destination) announced(header http.Header, received time.Time) (d Decision, ok bool) {
	if !h.o.TrustOutcome || header[OutcomeHeader] == nil {
		return Decision{}, false
	}
	item, err := httpsfv.UnmarshalItem(header[OutcomeHeader])
	if err != nil { // a time such as 1h needs no quotes here
		item, err = httpsfv.UnmarshalItem([]string{bareTime.ReplaceAllString(strings.Join(header[OutcomeHeader], ","), `="$1"`)})
	}
	then, isToken := item.Value.(httpsfv.Token)
	outcomes := []Then{ThenOK, ThenLimited, ThenRetry, ThenFail, ThenReschedule, ThenAccepted}
	if err != nil || !isToken || !slices.Contains(outcomes, Then(then)) {
		return Decision{}, false
	}
	length := func(parameter string) (d time.Duration) {
		switch given, _ := item.Params.Get(parameter); given := given.(type) {
		case int64:
			d = seconds(float64(given))
		case float64:
			d = seconds(given)
		case string:
			d, _ = hint.Read(given, hint.Answer{Header: header, Received: received}.At())
		}
		return d
	}
	d = Decision{Then: Then(then), By: OutcomeHeader, Wait: length("after"), Extend: length("extend")}
	if d.Then == ThenAccepted {
		d.Wait = length("within")
	}
	switch scope, _ := item.Params.Get("scope"); scope {
	case httpsfv.Token("key"):
		d.Scope = jobs.ScopeUser
	case httpsfv.Token("destination"):
		d.Scope = jobs.ScopeGlobal
	}
	return d, true
}

// seconds is a wait of at least 0 and at most hint.Longest.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(0, s), hint.Longest.Seconds()) * float64(time.Second))
}

// unknownPause is how long a job is rescheduled for if neither the decision nor a header says it.
const unknownPause = time.Second

// maxBy bounds the name and reason of a rule, in characters.
const maxBy = 200

// decided is the outcome of a decision on the answer to a job's call with a token.
func (h *Destination) decided(ctx context.Context, d Decision, job *jobs.Job, code int, token string, hints headerHints, r *secret.Redactor) error {
	by := text.Line(r.Redact(d.By), maxBy)
	answered := fmt.Errorf("answered %s; %s", statusText(code), by)
	if d.Cost != nil {
		job.Cost = int(math.Ceil(min(max(*d.Cost, 1), jobs.MaxCost)))
	}
	switch d.Then {
	case ThenOK:
		job.ReasonCode = string(store.ReasonOf(store.ReasonDecided, by))
		if d.Output != nil {
			if job.Output = d.Output; r.Redact(string(d.Output)) != string(d.Output) {
				job.Output = progress.HoldsSecret
			}
		}
		return nil
	case ThenLimited:
		return &jobs.RateLimitedError{RetryAfter: cmp.Or(d.Wait, hints.wait), Scope: cmp.Or(d.Scope, hints.scope), Err: errors.New(by)}
	case ThenReschedule:
		return &progress.DecidedError{Err: jobs.Reschedule(cmp.Or(d.Wait, hints.wait, unknownPause), jobs.ExtendExpiration(d.Extend)), By: by}
	case ThenAccepted:
		job.ReasonCode = string(store.ReasonOf(store.ReasonDecided, by))
		return jobs.Accepted(d.Wait)
	case ThenUnauthorized:
		scope, _ := h.credentials(ctx, job, token)
		return &jobs.UnauthorizedError{Err: answered, Scope: cmp.Or(d.Scope, scope)}
	case ThenRetry:
		return &progress.DecidedError{Err: answered, By: by}
	case ThenFail:
	}
	return &progress.DecidedError{Err: jobs.Discard(answered), By: by}
}
