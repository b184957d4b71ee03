package breakerhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
)

// judge returns the outcome of an answer that arrived at received.
func (t *Transport) judge(resp *http.Response, received time.Time) breaker.Outcome {
	limited := t.limited(resp)
	var said hint.Hint
	if len(t.dialects) > 0 { // hint.Parse takes none for the default ones
		said = hint.Parse(resp.Header, limited, received, t.dialects...)
	}
	outcome := breaker.Answered(resp.StatusCode)
	if resp.StatusCode == http.StatusProxyAuthRequired { // a proxy's: the API has not seen the request
		outcome = breaker.Neutral()
	}
	if limited {
		outcome = breaker.RateLimited(said.Wait)
	}
	if left := said.Budget; left != nil {
		outcome = outcome.WithBudget(*left)
	}
	outcome = outcome.WithScope(said.Scope)
	if t.outcome != nil {
		outcome = t.outcome(resp, outcome)
	}
	return outcome
}

// judgeError returns the outcome of a call without an answer. A cancelled request is neutral;
// a passed deadline is a timeout.
func judgeError(ctx context.Context, err error, inTime bool) (breaker.Outcome, error) {
	switch end := ctx.Err(); {
	case errors.Is(end, context.Canceled): // whatever the cause that err is
		return breaker.Neutral(), err
	case end != nil:
		return breaker.NoAnswer(), err
	case !inTime && err != nil:
		return breaker.NoAnswer(), &leaseError{err}
	case errors.Is(err, context.Canceled):
		return breaker.Neutral(), err
	}
	return breaker.NoAnswer(), err
}

// openResponse is the 503 of [OpenResponse].
func openResponse(req *http.Request, open *breaker.OpenError) *http.Response {
	text := open.Error() + "\n"
	seconds := (open.RetryAfter + time.Second - 1) / time.Second
	return &http.Response{
		StatusCode: http.StatusServiceUnavailable,
		Status:     fmt.Sprintf("%d %s", http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable)),
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Content-Type":      {"text/plain; charset=utf-8"},
			"Content-Length":    {strconv.Itoa(len(text))},
			"Retry-After":       {strconv.FormatInt(int64(seconds), 10)},
			"X-Circuit-Breaker": {open.Name},
		},
		ContentLength: int64(len(text)),
		Body:          io.NopCloser(strings.NewReader(text)),
		Request:       req,
	}
}
