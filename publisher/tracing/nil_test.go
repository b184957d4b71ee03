package tracing_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/publisher/tracing"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	tr := tracing.New(tracing.Options{})
	redistest.NilIsRefused(t, "tracing", map[string]func() error{
		"attempt": func() error {
			tr.Attempt(t.Context(), nil)
			return nil
		},
		"enqueue": func() error {
			tr.Enqueue(t.Context(), nil)
			return nil
		},
		"round trip": func() error {
			_, err := tr.Transport(nil).RoundTrip(nil) //nolint:bodyclose // there is no response
			return err
		},
	})
	redistest.NilIsRefused(t, "publisher", map[string]func() error{"observe": func() error {
		tr.Observe(nil)
		return nil
	}})
}
