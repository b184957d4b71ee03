package breakerhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// instance is one process's part, as far as HTTP is concerned.
type instance struct {
	*http.Client
	breaker *breaker.Breaker
}

// join makes an instance of a destination that ends with the test.
func join(t *testing.T, rdb redis.UniversalClient, o breaker.Options, options ...breakerhttp.Option) instance {
	t.Helper()
	return joinWith(t, rdb, o, transport(t), options...)
}

func joinWith(t *testing.T, rdb redis.UniversalClient, o breaker.Options, next http.RoundTripper, options ...breakerhttp.Option) instance {
	t.Helper()
	b, err := breaker.New(t.Context(), rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return instance{&http.Client{Transport: breakerhttp.New(b, next, options...)}, b}
}

func transport(t *testing.T) *http.Transport {
	next := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(next.CloseIdleConnections)
	return next
}

// call makes a call and returns the status, 0 with the error if there was none.
func (i instance) call(ctx context.Context, url string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := i.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode, err
}

// expect makes a call that must be answered with status.
func (i instance) expect(t *testing.T, url string, status int) {
	t.Helper()
	got, err := i.call(t.Context(), url)
	if err != nil || got != status {
		t.Fatalf("call: %d, %v; want %d", got, err, status)
	}
}

// refusal makes a call that must not be sent, and returns why.
func (i instance) refusal(t *testing.T, url string) *breaker.OpenError {
	t.Helper()
	status, err := i.call(t.Context(), url)
	open, ok := errors.AsType[*breaker.OpenError](err)
	if !ok || !errors.Is(err, breakerhttp.ErrNotSent) || !errors.Is(err, breaker.ErrOpen) {
		t.Fatalf("call: %d, %v; want it not to be sent", status, err)
	}
	return open
}

// api starts a fake API that ends with the test.
func api(t *testing.T, o fakeapi.Options) (*fakeapi.API, string) {
	t.Helper()
	a := fakeapi.New(o)
	url, err := a.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a, url
}

// answers makes a fake API give these statuses in turn.
func answers(statuses ...int) []fakeapi.Answer {
	out := make([]fakeapi.Answer, 0, len(statuses))
	for _, status := range statuses {
		out = append(out, fakeapi.Answer{Status: status})
	}
	return out
}

// awaitView waits until what the instance knows satisfies cond.
func awaitView(t *testing.T, b *breaker.Breaker, what string, cond func(breaker.View) bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for {
		changed := b.Changed()
		v := b.View()
		if cond(v) {
			return
		}
		var due <-chan time.Time // the end of OPEN is no change
		if v.State == breaker.Open && !v.OpenUntil.IsZero() {
			due = time.After(time.Until(v.OpenUntil))
		}
		select {
		case <-changed:
		case <-due:
		case <-deadline.C:
			t.Fatalf("not within 10s: %s; the view is %+v", what, b.View())
		}
	}
}

func inState(s breaker.State) func(breaker.View) bool {
	return func(v breaker.View) bool { return v.State == s }
}
