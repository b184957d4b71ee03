package publisher

import (
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// A job that failed waits for the next call as long as its limits space calls, 30 s at most.
func TestApart(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for _, row := range []struct {
		rate, key breaker.Rates
		want      time.Duration
	}{
		{nil, nil, 0},
		{breaker.Rates{{Calls: 1, Per: 4 * time.Second}}, breaker.Rates{{Calls: 1, Per: time.Second}}, 4 * time.Second},
		{nil, breaker.Rates{{Calls: 100, Per: 10 * time.Second}, {Calls: 200, Per: day}}, 30 * time.Second},
		{breaker.Rates{{Calls: 10, Per: day, Zone: "UTC"}, {Calls: 10, Per: time.Second}}, nil, 100 * time.Millisecond},
	} {
		if got := apart(row.rate, row.key); got != row.want {
			t.Errorf("%v and %v per key: %s apart, want %s", row.rate, row.key, got, row.want)
		}
	}
}
