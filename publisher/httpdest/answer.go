package httpdest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds of stored responses, in bytes.
const (
	leastRead   = 64 << 10 // of a body, from the network, or as much as is kept
	defaultKept = 4 << 10  // of a body, with the job
	mostKept    = 1 << 20  // the same, if configured

	maxContentType = 200 // kept of a job of the gateway
)

// answer keeps a response with its job, and returns its outcome: as the API itself decides (Tidegate-Outcome), else
// the rules, else the status. token is the call's. cut ends the read of the body.
func (h *Destination) answer(ctx context.Context, job *jobs.Job, resp *http.Response, token string, r *secret.Redactor, cut func()) error {
	received := time.Now()
	decision, decided := h.announced(resp.Header, received)
	if resp.StatusCode == http.StatusProxyAuthRequired && !decided && !slices.Contains(h.o.PermanentStatus, resp.StatusCode) {
		return withoutSecrets(r, jobs.Unreachable(errors.New("a proxy refuses its credentials (407): check those in HTTP_PROXY and HTTPS_PROXY")))
	}
	limited := decision.Then == ThenLimited || !decided && h.limited(resp, received)
	job.Response = &jobs.Response{Status: resp.StatusCode}
	// The header decides the outcome, even if the body breaks off.
	redact := r.Redact
	most := max(leastRead, h.o.ResponseBodyBytes)
	if job.KeepResponse {
		most = store.MostGatewayBody + 1
	}
	var incomplete error // why the body that was read is not the whole one
	read := func() []byte {
		most := most
		if h.o.Rules != nil || h.o.Costs != nil {
			most = max(most, MaxRulesBody)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)))
		if err != nil || len(body) == most {
			redact = r.RedactCut
		}
		incomplete = err
		if h.o.Rules != nil && len(body) == most {
			if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err == nil {
				incomplete = fmt.Errorf("rules see %d bytes", most)
			} else if !errors.Is(err, io.EOF) {
				incomplete = err
			}
		}
		return body
	}
	keep := func(body []byte) {
		if len(body) > most {
			body, redact = body[:most], r.RedactCut
		}
		job.Response = &jobs.Response{Status: resp.StatusCode, Body: text.Head(redact(text.Printable(redact(string(body)))), h.o.ResponseBodyBytes)}
		if job.KeepResponse {
			raw := redact(string(body))
			job.Response.ContentType = text.Head(text.Printable(r.Redact(resp.Header.Get("Content-Type"))), maxContentType)
			job.Response.Headers = h.passedHeaders(job, resp, r)
			job.Response.Cut = incomplete != nil || len(raw) > store.MostGatewayBody
			job.Response.Raw = raw[:min(len(raw), store.MostGatewayBody)]
		}
	}
	rules := !decided && h.o.Rules != nil
	forbidden := !decided && !limited && resp.StatusCode == http.StatusForbidden && !slices.Contains(h.o.PermanentStatus, resp.StatusCode)
	var body []byte
	if rules || forbidden {
		if limited {
			end := time.AfterFunc(limitedBodyFor, cut)
			defer end.Stop()
		}
		body = read()
		if rules {
			decision, decided = h.o.Rules.Decide(Answered{Job: job, Status: resp.StatusCode, Header: resp.Header, Body: body, Received: received})
		}
		if decided {
			limited = decision.Then == ThenLimited
		} else if forbidden {
			limited = namesLimit(body)
		}
		keep(body)
	}
	hints := h.hints(resp.Header, limited, received)
	if len(decision.Budgets) > 0 {
		hints.add(decision.Budgets, limited)
	}
	job.Budget = hints.budget
	var err error
	switch {
	case decided:
		err = h.decided(ctx, decision, job, resp.StatusCode, token, hints, r)
	case limited:
		err = jobs.RateLimited(hints.wait, hints.scope)
	case rules && incomplete != nil && resp.StatusCode >= 200 && resp.StatusCode < 300:
		// A rule may have matched the rest: the status alone is no proof of a success.
		err = withoutSecrets(r, &progress.NoAnswerError{Err: fmt.Errorf("answered %s, and the answer broke off: %w", statusText(resp.StatusCode), incomplete)})
	default:
		err = h.classify(resp.StatusCode)
		if scope, has := h.credentials(ctx, job, token); has && resp.StatusCode == http.StatusUnauthorized {
			err = &jobs.UnauthorizedError{Err: fmt.Errorf("answered %s", statusText(resp.StatusCode)), Scope: scope}
		}
	}
	switch {
	case rules || forbidden: // its body is kept
	case limited:
		readLimited(ctx, err, read, keep, cut)
	default:
		body = read()
		keep(body)
	}
	if h.o.Costs != nil && !limited {
		for unit, n := range h.o.Costs(Answered{Job: job, Status: resp.StatusCode, Header: resp.Header, Body: body, Received: received}) {
			if job.Costs == nil {
				job.Costs = map[string]int{}
			}
			job.Costs[unit] = n
		}
	}
	if !decided && !limited && (err == nil || resp.StatusCode != http.StatusUnauthorized) {
		if d, found := doubtOf(resp.StatusCode, body); found {
			progress.Of(ctx).Doubt(d, resp.StatusCode)
			if d.Limit {
				err = named(err, d)
			}
		}
	}
	return err
}

// named adds to the error of a response that its body names a rate limit.
func named(err error, d progress.Doubt) error {
	hint := "its body names a rate limit (" + d.Sign + "); an answer rule would hold such jobs: " + d.Rule
	if fail, ok := errors.AsType[*jobs.FailError](err); ok && fail.Permanent {
		return jobs.Discard(fmt.Errorf("%w; %s", fail.Err, hint))
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// headerHints are the hints of a response's headers about the API's limit.
type headerHints struct {
	wait   time.Duration
	scope  jobs.Scope
	budget *jobs.Budget
}

// limited reports whether the status of a response received at that time means "rate limited".
func (h *Destination) limited(resp *http.Response, received time.Time) bool {
	if !slices.Contains(h.o.PermanentStatus, resp.StatusCode) && hint.RetryLater(resp.StatusCode, resp.Header, received, h.o.Hints...) {
		return true
	}
	return slices.Contains(h.o.RateLimitedStatus, resp.StatusCode) &&
		(resp.StatusCode != http.StatusForbidden || hint.LimitReached(resp.Header, received, h.o.Hints...))
}

// hints reads the headers of a response received at that time.
func (h *Destination) hints(header http.Header, limited bool, received time.Time) headerHints {
	if len(h.o.Hints) == 0 {
		return headerHints{}
	}
	got := hint.Parse(header, limited, received, h.o.Hints...)
	out := headerHints{wait: got.Wait, scope: got.Scope}
	// Without a reset its end is unknown.
	if b := got.Budget; b != nil && b.Reset > 0 {
		b.Scope = got.Scope
		out.budget = b
	}
	return out
}

// add adds budgets and replaces budgets of the same name. A call reports to one breaker: if both the destination and
// the key have announced budgets, the set with the tighter one counts. A budget with no call left also says how long
// a refusal lasts.
func (h *headerHints) add(budgets []jobs.Budget, limited bool) {
	budgets = slices.Clone(budgets)
	if b := h.budget; b != nil {
		for _, of := range append([]jobs.Budget{*b}, b.Also...) {
			if !slices.ContainsFunc(budgets, func(b jobs.Budget) bool { return b.Name == of.Name }) {
				of.Scope, of.Also = b.Scope, nil
				budgets = append(budgets, of)
			}
		}
	}
	first := hint.Join(budgets...)
	ofAll := func(b jobs.Budget) bool { return b.Scope == jobs.ScopeGlobal }
	h.budget = hint.Join(slices.DeleteFunc(budgets, func(b jobs.Budget) bool { return ofAll(b) != ofAll(*first) })...)
	if limited && h.wait == 0 && first.Remaining == 0 {
		h.wait, h.scope = first.Reset, cmp.Or(first.Scope, h.scope)
	}
}

// classify turns the status of a response that is not rate limited into an outcome.
func (h *Destination) classify(code int) error {
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400 && code != http.StatusNotModified:
		return jobs.Discard(fmt.Errorf("answered %s: redirects are not followed; set the destination's URL to the final address", statusText(code)))
	case code == http.StatusForbidden && slices.Contains(h.o.RateLimitedStatus, code):
		return jobs.Discard(fmt.Errorf("answered %s, and neither a header nor its body says that a limit is reached", statusText(code)))
	case slices.Contains(h.o.PermanentStatus, code):
		return jobs.Discard(fmt.Errorf("answered %s", statusText(code)))
	}
	return fmt.Errorf("answered %s", statusText(code))
}

func statusText(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}
