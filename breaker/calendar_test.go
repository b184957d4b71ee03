package breaker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestWindowsOfACalendar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		per                time.Duration
		zone, at, from, to string
	}{
		{day, "Europe/Paris", "2026-03-29T10:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"}, // 23 hours
		{day, "Europe/Paris", "2026-10-25T10:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"}, // 25
		{6 * time.Hour, "Europe/Paris", "2026-03-29T03:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T04:00:00Z"},
		{time.Hour, "Europe/Paris", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"}, // 2 o'clock comes twice
		{time.Hour, "Europe/Paris", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z"},
		{15 * minute, "Asia/Kolkata", "2026-10-25T01:31:00Z", "2026-10-25T01:30:00Z", "2026-10-25T01:45:00Z"},
		{week, "UTC", "2026-11-22T12:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"},
		{day, "America/Havana", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},         // from 1 o'clock: midnight is skipped
		{6 * time.Hour, "Pacific/Apia", "2011-12-30T08:00:00Z", "2011-12-30T04:00:00Z", "2011-12-30T10:00:00Z"}, // the next day is skipped
		{Month, "America/New_York", "2026-03-10T00:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, c.at)
		if err != nil {
			t.Fatal(err)
		}
		from, to := calendar{c.per, zone}.window(at)
		if from.UTC().Format(time.RFC3339) != c.from || to.UTC().Format(time.RFC3339) != c.to {
			t.Errorf("%v in %s at %s: %v to %v, want %s to %s", c.per, c.zone, c.at, from.UTC(), to.UTC(), c.from, c.to)
		}
	}
}

// Each instant is in one window, also where a zone sets its clocks at midnight, by half an hour,
// or skips a day.
func TestWindowsOfACalendarLeaveNoGap(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{
		"Europe/Paris": "2026-03-27T00:00:00Z", "America/Havana": "2026-03-06T00:00:00Z", "Asia/Beirut": "2026-10-23T00:00:00Z",
		"Australia/Lord_Howe": "2026-04-03T00:00:00Z", "Pacific/Apia": "2011-12-28T00:00:00Z",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, begin)
		if err != nil {
			t.Fatal(err)
		}
		for _, per := range []time.Duration{minute, 15 * minute, time.Hour, 2 * time.Hour, 6 * time.Hour, day, week, Month} {
			c := calendar{per, zone}
			for i := range 5 * 24 * 4 {
				now := at.Add(time.Duration(i) * 15 * minute)
				from, to := c.window(now)
				if from.After(now) || !to.After(now) {
					t.Fatalf("%v in %s: %v is not in its window, %v to %v", per, name, now, from.UTC(), to.UTC())
				}
				for _, other := range []time.Time{from, to.Add(-1)} {
					if f, e := c.window(other); !f.Equal(from) || !e.Equal(to) {
						t.Fatalf("%v in %s: %v is in %v to %v, and %v in %v to %v", per, name, now, from.UTC(), to.UTC(), other.UTC(), f.UTC(), e.UTC())
					}
				}
			}
		}
	}
}

// What happens to limits that are used up: how many calls start after the disturbance, of a
// sliding and of a fixed window. go test -v prints the table.
func TestDeclaredLimitsThroughDisturbances(t *testing.T) {
	t.Parallel()
	table := []string{"disturbance | 60/1h:6 | 6/1d@Europe/Paris"}
	for _, c := range []struct {
		name    string
		disturb action
		want    [2]int
	}{
		{"none", pass(0), [2]int{0, 0}},
		{"Redis's clock goes back by 10 min", jump(-10 * minute), [2]int{0, 0}},
		{"Redis's clock goes back over midnight", jump(-5 * time.Hour), [2]int{0, 0}},
		{"Redis's clock goes on by 1 min", jump(minute), [2]int{1, 0}},
		{"Redis's clock goes on by 1 d", jump(day), [2]int{6, 6}},
		{"the client's clock goes on by 1 h", func(h *harness) string { h.clock.advance(time.Hour, 0); return "" }, [2]int{0, 0}},
		{"the client's clock goes on by 1 d", func(h *harness) string { h.clock.advance(day, 0); return "" }, [2]int{0, 0}},
		{"FLUSHALL, or a failover to an empty replica", lose(), [2]int{6, 6}},
	} {
		var got [2]int
		for i, limit := range []string{"60/1h:6", "6/1d@Europe/Paris"} {
			h := newHarness(t, redistest.Shared(t).Client(t), windowed(limit, ""))
			if n := tries(9, "a")(h); !strings.HasPrefix(n, "6, then") {
				t.Fatalf("before: %s", n)
			}
			c.disturb(h)
			for range 9 {
				_, err := h.b.Allow(t.Context())
				if errors.Is(err, ErrOpen) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got[i]++
			}
			if got[i] != c.want[i] {
				t.Errorf("%s: %d calls by %s, want %d", c.name, got[i], limit, c.want[i])
			}
		}
		table = append(table, fmt.Sprintf("%s | %d | %d", c.name, got[0], got[1]))
	}
	t.Log("calls after it:\n" + strings.Join(table, "\n"))
}

// A replica that becomes the master keeps what is used of a limit, with costs and debts.
func TestDeclaredLimitsAfterAFailover(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	master, replica := redistest.Start(t), redistest.Start(t)
	old, promoted := master.Client(t), replica.Client(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	if err := promoted.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, old, windowed("60/1h:6,20/1d@Europe/Paris", "60/1h:6"))
	want := "D CLOSED rate 20/1d@Europe/Paris for 20h59m59.877s"
	for _, step := range []struct {
		do   action
		want string
	}{
		{costing(6, of("k", try("a"))), "key-rate rate"},
		{tell("a", Success().WithCost(20)), "CLOSED"},
		{of("k", try("x")), want},
	} {
		if got := step.do(h); got != step.want {
			t.Fatalf("before: %s, want %s", got, step.want)
		}
	}
	redistest.Eventually(t, "the replica has it all", func() bool {
		n, err := old.Do(t.Context(), "WAIT", 1, 1000).Int()
		return err == nil && n == 1
	})
	if err := promoted.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	b, err := newTestBreaker(promoted, h.options, h.clock.clock())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, b)
	after := *h
	after.b, after.rdb = b, promoted
	look(&after)
	if got := of("k", try("x"))(&after); got != want {
		t.Errorf("after: %s, want %s", got, want)
	}
}
