package publisher_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/publisher"
)

// dripping answers 429 with a Retry-After and a body that never ends by itself: one byte
// each 20 ms.
func dripping(t *testing.T) (a *api, headersAt <-chan time.Time) {
	sent := make(chan time.Time, 10)
	return newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
		flush(w)
		sent <- time.Now()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
				if _, err := io.WriteString(w, "x"); err != nil {
					return
				}
				flush(w)
			}
		}
	}), sent
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// The breaker opens when the header of a 429 has arrived, not when its body has. The
// body is waited for a while, not for the whole timeout, and what has come is kept.
func TestHTTPRateLimitIsReportedAtTheHeader(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	a, headersAt := dripping(t)
	h := newHTTP(t, publisher.HTTPOptions{URL: a.URL})
	transitions := make(chan breaker.Event, 10)
	answers := make(chan publisher.Answer, 10)
	o := b.options()
	o.Observe(publisher.Observer{OnAnswer: func(x publisher.Answer) { answers <- x }})
	b.run(o, h.Publish, publisher.Concurrency(1), publisher.Timeout(time.Minute),
		publisher.Breaker(breaker.Options{OnEvent: func(e breaker.Event) { transitions <- e }}))
	job := b.enqueue()

	sent := <-headersAt
	select {
	case e := <-transitions:
		if e.To != breaker.Open || e.Cause != breaker.CauseHint {
			t.Errorf("the breaker went to %s because of %s, want OPEN because of its hint", e.To, e.Cause)
		}
		t.Logf("open %s after the header was sent", time.Since(sent))
	case <-time.After(publisher.LimitedBodyFor - time.Second):
		t.Errorf("the breaker is not open %s after the header of the 429", time.Since(sent))
	}
	if x := <-answers; x.Status != http.StatusTooManyRequests || x.RetryAfter != 10*time.Minute || x.Body != "" {
		t.Errorf("observers were told of %+v", x)
	}
	e := b.result(job.ID)
	if e.Result != publisher.Rescheduled || e.Reason != publisher.ReasonRateLimited || e.Outcome != publisher.OutcomeRateLimited {
		t.Errorf("the job: %s (%s), its call %s", e.Result, e.Reason, e.Outcome)
	}
	if took := time.Since(sent); took > 40*time.Second {
		t.Errorf("the job's slot was taken for %s, want about %s", took, publisher.LimitedBodyFor)
	}
	if got := b.get(job.ID); got.Response == nil || got.Response.Status != http.StatusTooManyRequests || !strings.HasPrefix(got.Response.Body, "xx") {
		t.Errorf("kept of the answer: %+v", got.Response)
	}
	if s := b.breaker(); s.Wasted != 1 || len(answers) != 0 || len(transitions) != 0 {
		t.Errorf("%d wasted calls, and %d answers and %d transitions more were told: one report is wanted", s.Wasted, len(answers), len(transitions))
	}
}
