package httpdest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/jobs"
)

// Redis stalls while the token is kept: nothing was sent, and the job is to be tried again, whatever field has the callback.
func TestTokenThatRedisDidNotKeep(t *testing.T) {
	a := httptest.NewServer(http.NotFoundHandler())
	defer a.Close()
	h, err := New(Options{URL: a.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // timeout_secs
	defer cancel()
	w := *progress.Of(ctx)
	w.Callback = func() (string, error) {
		<-ctx.Done() // the call's time is over while Redis stalls
		return "", fmt.Errorf("%w: keep the token: i/o timeout", breakerhttp.ErrNotSent)
	}
	job := &jobs.Job{ID: "a", Payload: []byte(`{"cb":"{{ callback }}"}`)}
	err = h.send(progress.With(ctx, &w), job, "")
	fail, ok := errors.AsType[*jobs.FailError](err)
	if ok && fail.Permanent {
		t.Errorf("the job fails for good: %v", err)
	}
}
