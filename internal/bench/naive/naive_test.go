package naive_test

import (
	"os"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/bench/naive"
	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// TestRules holds the competitor to what its documentation says of it.
func TestRules(t *testing.T) {
	t.Parallel()
	const cooldown = 50 * time.Millisecond
	ctx := t.Context()
	b := naive.New(redistest.Shared(t).Client(t), redistest.Name(t, "naive"), 2, cooldown)
	limited := func(hint time.Duration) {
		t.Helper()
		if err := b.RateLimited(ctx, hint); err != nil {
			t.Fatal(err)
		}
	}
	allowed := func(want bool) time.Time {
		t.Helper()
		ok, until, err := b.Allow(ctx)
		if err != nil || ok != want {
			t.Fatalf("Allow = %t, %v; want %t", ok, err, want)
		}
		return until
	}
	allowed(true)
	limited(0)
	allowed(true)
	limited(0)
	until := allowed(false)
	<-time.After(time.Until(until))
	allowed(true) // HALF_OPEN: everybody may
	allowed(true)
	limited(0) // the count is still there: open again at once
	allowed(false)
	if err := b.Succeeded(ctx); err != nil { // also one that had begun before
		t.Fatal(err)
	}
	allowed(true)
	limited(time.Minute)
	if left := time.Until(allowed(false)); left < 50*time.Second {
		t.Errorf("open for %s, want the hint's minute", left)
	}
}
