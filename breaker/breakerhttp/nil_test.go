package breakerhttp_test

import (
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	b, err := breaker.New(t.Context(), redistest.Embedded(t), breaker.Options{Destination: "api"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	redistest.NilIsRefused(t, "breakerhttp", map[string]func() error{
		"new": func() error {
			breakerhttp.New(nil, nil)
			return nil
		},
		"round trip": func() error {
			_, err := breakerhttp.New(b, nil, nil, breakerhttp.Key(nil), breakerhttp.RateLimitedIf(nil), breakerhttp.Logger(nil)).RoundTrip(nil) //nolint:bodyclose // there is no response
			return err
		},
	})
}
