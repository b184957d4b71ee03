package breaker

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/ratelimit"
)

// Outcome is the outcome of a call. The zero Outcome is neutral: the call says nothing about
// the API, because it was cancelled or never made.
type Outcome struct {
	kind      outcomeKind
	hasBudget bool // budget is set
	hint      time.Duration
	scope     Scope
	budget    Budget
	refused   *refusal // of the credentials
	outage    outageKind
	busy      bool   // 503, which some limiters answer
	job       uint64 // a hash of its id; 0 is unknown
	cost      int    // 0 is as permitted
	draws     []Draw // likewise
	ongoing   bool
	doubt     bool // the refusal may be the call's own
	ended     time.Time
}

// outageKind is what a call counts for an outage: only calls of the same kind add up.
type outageKind uint8

const (
	noOutage outageKind = iota
	apiDown             // 5xx, or no answer
	all401
	all403
)

var outageNames = [...]string{noOutage: "", apiDown: "down", all401: "401", all403: "403"}

// maxCredentials bounds an id of credentials, in bytes.
const maxCredentials = 64

// refusal is why the API refused the credentials of a call.
type refusal struct {
	reason    string
	permanent bool
	id        string // of the credentials
	retry     time.Duration
	uncalled  bool
}

type outcomeKind uint8

const (
	neutral outcomeKind = iota
	success
	failure
	limited
	unauthorized
)

var outcomeNames = [...]string{
	neutral: "neutral", success: "success", failure: "failure", limited: "limited", unauthorized: "unauthorized",
}

// Success says that the API let the call in. It resets the count of failures,
// lets a slow start grow and, from the probe, closes the breaker.
func Success() Outcome { return Outcome{kind: success} }

// Answered judges an HTTP answer that is not rate limited by its status. 5xx is [NoAnswer]. Any
// other status is a [Success], also one that rejects the call (401, 404, 422): an API that is at
// its limit does not let the call in. But if the last [Options.OutageThreshold] calls were all
// answered 401, or all 403, the breaker opens, and such a probe opens it again.
func Answered(status int) Outcome {
	// As numbers: for its constants net/http would make each program that imports breaker larger by 1.4 MB.
	switch {
	case status >= 500:
		o := NoAnswer()
		o.busy = status == 503
		return o
	case status == 401:
		return Outcome{kind: success, outage: all401}
	case status == 403:
		return Outcome{kind: success, outage: all403}
	}
	return Success()
}

// NoAnswer is a [Failure] of the API: 5xx, a timeout, or a broken connection. If the last
// [Options.OutageThreshold] calls all ended so, the breaker opens with [CauseOutage].
func NoAnswer() Outcome { return Outcome{kind: failure, outage: apiDown} }

// WithJob adds the id of what the call was made for: several calls of one job count once for an outage, and a refusal
// may turn out to be the job's own: then it does not hold the calls for others.
func (o Outcome) WithJob(id string) Outcome {
	if o.outage == noOutage && o.kind != limited {
		return o
	}
	o.job = jobHash(id)
	return o
}

func jobHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// WithCost adds what the call has really cost, if that is n > 0. What its permit took of the
// declared limits is corrected by a Redis command: less is given back; more is a debt, of up to a
// window, for which the next calls wait.
func (o Outcome) WithCost(n int) Outcome {
	o.cost = max(0, min(n, maxCost))
	return o
}

// WithDraws is WithCost for named limits. The keys of the draws do not matter.
func (o Outcome) WithDraws(draws ...Draw) Outcome {
	o.draws = draws
	return o
}

// Ongoing says that the call goes on after its outcome: the body of the response is still read. With
// [Options.FleetConcurrency] or KeyConcurrency its slot stays taken until [Permit.End], and until its lease
// ends at the latest.
func (o Outcome) Ongoing() Outcome {
	o.ongoing = true
	return o
}

// maxCost bounds what a call has really cost.
const maxCost = 1_000_000_000

// RateLimited says that the API refused the call because of its limit (429). A
// hint above 0 is how long the API asked to wait: it opens the breaker at once
// for that long, at most for MaxCooldown.
func RateLimited(hint time.Duration) Outcome {
	return Outcome{kind: limited, hint: max(0, hint)}
}

// WithDoubt says that the API may have refused the call for its own sake: it was refused before, and other calls
// were accepted since. A [RateLimited] counts, but no limit is learned from its hint; of a [Neutral] it is sure, and what
// hints have taught is forgotten.
func (o Outcome) WithDoubt() Outcome {
	o.doubt = true
	return o
}

// Failure says that the call failed, and not whether the API was the reason; see [NoAnswer]. It
// neither counts nor resets; after a failed probe the next one waits, longer each time.
func Failure() Outcome { return Outcome{kind: failure} }

// Unauthorized says that the API refused the credentials of the call (401). It opens the breaker at once, for a
// cooldown, with [CauseCredentials]: the breaker of the key that owns the credentials, or, with ScopeGlobal or for a
// call without a key, the destination's. One probe per cooldown tries them again; [Breaker.CredentialsRenewed] closes
// the breaker sooner.
func Unauthorized() Outcome { return Outcome{kind: unauthorized} }

// WithReason adds why the credentials were refused, for [Status.Reason]; at most 500 characters
// are kept. permanent says that only a person can renew them, so that waiting is of no use.
func (o Outcome) WithReason(reason string, permanent bool) Outcome {
	if runes := []rune(strings.ToValidUTF8(reason, "\uFFFD")); len(runes) > maxReason {
		reason = string(runes[:maxReason])
	} else {
		reason = string(runes)
	}
	return o.because(func(why *refusal) { why.reason, why.permanent = reason, permanent })
}

// WithCredentials adds an id of the refused credentials, such as a short hash of
// them; at most 64 bytes. See [Breaker.CredentialsRenewed].
func (o Outcome) WithCredentials(id string) Outcome {
	return o.because(func(why *refusal) { why.id = id[:min(len(id), maxCredentials)] })
}

// WithoutCall says that no call was made, as there were no credentials for it. The API has said
// nothing then: the breaker that opens has wasted no call, the destination's is not affected by a
// key without credentials, and declared limits count the call no more.
func (o Outcome) WithoutCall() Outcome {
	return o.because(func(why *refusal) { why.uncalled = true })
}

// WithRetry says after how long to ask for credentials again that could not be obtained: a token
// server is away. The breaker opens until then, in place of a cooldown.
func (o Outcome) WithRetry(after time.Duration) Outcome {
	return o.because(func(why *refusal) { why.retry = after })
}

func (o Outcome) because(change func(*refusal)) Outcome {
	why := refusal{}
	if o.refused != nil {
		why = *o.refused
	}
	change(&why)
	o.refused = &why
	return o
}

// jobToken is the job as the scripts know it.
func (o Outcome) jobToken() string {
	if o.job == 0 {
		return ""
	}
	return token(o.job)
}

// Neutral says that the call says nothing about the API: it was cancelled.
func Neutral() Outcome { return Outcome{} }

// Scope is the scope of a limit. Without one, and with ScopeUser, the outcome of a keyed call
// counts for its key, with ScopeGlobal for the destination. That of a call without a key
// counts for the destination. With ScopeKey nothing of the outcome counts for the destination, not even a
// success or an outage: whoever reports it is believed about its key alone.
type Scope = ratelimit.Scope

// The scopes.
const (
	ScopeUnknown = ratelimit.ScopeUnknown
	ScopeUser    = ratelimit.ScopeUser
	ScopeGlobal  = ratelimit.ScopeGlobal
	ScopeKey     = ratelimit.ScopeKey
)

// WithScope adds the scope of the limit.
func (o Outcome) WithScope(s Scope) Outcome {
	o.scope = s
	return o
}

// Budget is the remaining budget of an API's limit.
type Budget = ratelimit.Budget

// WithBudget adds the remaining budget that the API reported. While it is more than twice
// what the instances can have in flight, it costs nothing. Then calls are counted in Redis,
// and one may start only if it is sure to be within the budget; at 0 the breaker opens until
// the window ends. A budget without a Reset, or with a negative Remaining, is ignored. Of
// several, b is the one with the fewest calls left, and b.Also are the others.
func (o Outcome) WithBudget(b Budget) Outcome {
	if b.Remaining >= 0 && b.Reset > 0 {
		o.budget, o.hasBudget = b, true
	}
	return o
}

// windows are the announced windows as the report takes them, if there are several or it has a name.
func (o Outcome) windows() string {
	if !o.hasBudget || len(o.budget.Also) == 0 && o.budget.Name == "" {
		return ""
	}
	var out []string
	for _, b := range append([]Budget{o.budget}, o.budget.Also...) {
		if b.Remaining < 0 || b.Reset <= 0 || len(out) == maxWindows {
			continue
		}
		out = append(out, fmt.Sprintf("%s %d %d %d", windowID(b), b.Remaining, millis(b.Reset), max(0, b.Limit)))
	}
	return strings.Join(out, " ")
}

// ofName precedes the name of a window in its id.
const ofName = "="

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// windowID is a word that identifies a window: its name if that is short, plain and the operator's, else a hash.
func windowID(b Budget) string {
	if b.Shown && plainName.MatchString(b.Name) {
		return ofName + b.Name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(cmp.Or(b.Name, strconv.Itoa(b.Limit))))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// windowName is the name of a window by its id; "" if it is not the operator's.
func windowName(id string) string {
	name, named := strings.CutPrefix(id, ofName)
	if !named {
		return ""
	}
	return name
}

// maxWindows is how many windows of an API are kept.
const maxWindows = 4

// left returns the budget as the report takes it.
func (o Outcome) left(ignore bool) (left string, reset int64, limit int) {
	if !o.hasBudget || ignore {
		return "", 0, 0
	}
	return strconv.Itoa(o.budget.Remaining), millis(o.budget.Reset), max(0, o.budget.Limit)
}

// String names the outcome.
func (o Outcome) String() string {
	if o.hint > 0 {
		return outcomeNames[o.kind] + " " + o.hint.String()
	}
	return outcomeNames[o.kind]
}
