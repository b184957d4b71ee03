package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func rated(text string, burst int) Options {
	r, err := ParseRates(text)
	if err != nil {
		panic(err)
	}
	r[0].Burst = burst
	return Options{NoLearning: true, Rate: r, FailureThreshold: 1, Cooldown: minute}
}

func TestRates(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"rate spaces calls evenly", rated("60/1h", 0), []row{
			{0, try("a"), "rate"},
			{0, try("x"), "D CLOSED rate for 1m0s"},
			{45 * second, try("x"), "D CLOSED rate for 15s"},
			{45 * second, on("worker-2", try("x")), "D CLOSED rate for 15s"},
			{minute - time.Millisecond, try("x"), "D CLOSED rate for 1ms"},
			{minute, on("worker-2", try("b")), "rate"},
			{minute, try("x"), "D CLOSED rate for 1m0s"},
			// What was not used is not saved.
			{time.Hour, try("c"), "rate"},
			{time.Hour, try("x"), "D CLOSED rate for 1m0s"},
		}},
		{"burst", rated("10/s", 3), []row{
			{0, tries(9, "a"), "3, then D CLOSED rate for 100ms"},
			{100 * time.Millisecond, tries(9, "b"), "1, then D CLOSED rate for 100ms"},
			{300 * time.Millisecond, tries(9, "c"), "2, then D CLOSED rate for 100ms"},
			{time.Hour, tries(9, "d"), "3, then D CLOSED rate for 100ms"},
		}},
		{"release gives the rate back", rated("60/1h", 2), []row{
			{0, tries(9, "a"), "2, then D CLOSED rate for 1m0s"},
			{0, release("a0"), "CLOSED"},
			{0, release("a0"), "CLOSED"}, // once
			{0, tries(9, "b"), "1, then D CLOSED rate for 1m0s"},
			{0, tell("b0", Success()), "CLOSED"},
			{0, release("b0"), "CLOSED"}, // it was made
			{0, tries(9, "c"), "0, then D CLOSED rate for 1m0s"},
			{0, tell("a1", Neutral()), "CLOSED"}, // made and cancelled
			{0, tries(9, "c"), "0, then D CLOSED rate for 1m0s"},
		}},
		{"for key takes no rate of its own", rated("60/1h", 2), []row{
			{0, of("k", call(RateLimited(minute))), "OPEN 1m0s failures=1 hint wasted=1"},
			{minute, try("p"), "rate"},
			{minute, forKey("p", "k", "pk"), "key-probe rate"},
			{minute, try("q"), "rate"},
			{minute, try("x"), "D CLOSED rate for 1m0s"},
			{minute, of("k", release("pk")), "HALF_OPEN failures=1 hint wasted=1"},
			{minute, try("r"), "rate"},
		}},
	})
}

// A report of a call that was not made gives back the rate, of the destination and of the key, once.
func TestCallWithoutCredentialsGivesTheRateBack(t *testing.T) {
	t.Parallel()
	o := rated("60/1h", 2)
	o.KeyRate = o.Rate
	missing := Unauthorized().WithRetry(second).WithoutCall()
	runRows(t, o,
		row{0, of("k", ask("p")), "permit"},
		row{0, of("k", tell("p", missing)), "OPEN 1s credentials"},
		row{0, of("k", tell("p", missing)), "OPEN 1s credentials"},
		row{second, of("k", ask("probe")), "probe"},
		row{second, of("k", tell("probe", Success())), "CLOSED"},
		row{second, of("k", tries(9, "b")), "1, then D CLOSED rate 60/1h:2 for 1m0s"},
	)
}

// A permit that the breaker has counted as well gives back the rate once, too.
func TestReleaseOfACountedCallGivesTheRateBackOnce(t *testing.T) {
	t.Parallel()
	o := rated("60/1h", 3)
	o.MaxInFlight = 8
	runRows(t, o,
		row{0, trip(0), "OPEN until reset manual"},
		row{0, reset, "CLOSED slow=1"},
		row{0, try("a"), "counted rate"},
		row{0, release("a"), "CLOSED slow=1"},
		row{0, release("a"), "CLOSED slow=1"},
		row{0, try("b"), "counted rate"},
		row{0, tell("b", Success()), "CLOSED slow=2"},
		row{0, release("b"), "CLOSED slow=2"},
		row{0, reset, "CLOSED"},
		row{0, tries(9, "c"), "2, then D CLOSED rate for 1m0s"},
	)
}

// Who is refused for another reason takes nothing from the rate, and who is refused
// by the rate takes neither lease nor place.
func TestRateAndBreaker(t *testing.T) {
	t.Parallel()
	o := rated("60/1h", 1)
	o.MaxInFlight, o.Cooldown = 8, 10*second
	runRows(t, o,
		row{0, of("k", trip(0)), "OPEN until reset manual"},
		row{0, of("k", try("x")), "D/k OPEN manual for 1h0m0s"},
		row{0, call(RateLimited(0)), "OPEN 10s failures=1 threshold wasted=1"},
		row{0, try("x"), "D OPEN threshold for 10s"},
		row{10 * second, try("x"), "D HALF_OPEN rate for 50s"},
		row{10 * second, get, "HALF_OPEN failures=1 threshold wasted=1"},
		row{minute, try("probe"), "probe rate"},
		row{minute, try("x"), "D HALF_OPEN threshold for 35s"},
		row{minute, release("probe"), "HALF_OPEN failures=1 threshold wasted=1"},
		row{minute, try("probe"), "probe rate"},
		row{2 * minute, tell("probe", Success()), "CLOSED slow=1"},
		row{2 * minute, try("a"), "counted rate"},
		row{2 * minute, try("x"), "D CLOSED slow_start for 1s"},
		row{2 * minute, tell("a", Success()), "CLOSED slow=2"},
		row{2 * minute, try("x"), "D CLOSED rate for 1m0s"},
		row{3 * minute, of("other", try("b")), "counted rate"},
		row{3 * minute, forKey("b", "other", "c"), "counted rate"},
	)
}

// A field that is not a limit, such as one of another version, is deleted and refuses no call.
func TestALimitThatCannotBeRead(t *testing.T) {
	t.Parallel()
	store := func(h *harness) string {
		fields := []string{"60000000 1", "1", "", "1", "0/60000000:1", "1", "60/3600000000:0", "1", "60/3600000000:5 60", "1"}
		if err := h.rdb.HSet(h.t.Context(), h.place.keys[7], fields).Err(); err != nil {
			h.t.Fatal(err)
		}
		return ""
	}
	stored := func(h *harness) string {
		return strings.Join(h.rdb.HKeys(h.t.Context(), h.place.keys[7]).Val(), ", ")
	}
	runRows(t, rated("60/1h", 2),
		row{0, store, ""},
		row{0, get, "CLOSED"},
		row{0, tries(9, "a"), "2, then D CLOSED rate for 1m0s"},
		row{0, stored, "60/3600000000:2"},
		row{0, store, ""},
		row{0, release("a0"), "CLOSED"},
		row{0, try("b"), "rate"},
	)
}

// Workers that are configured with different rates, as during a rolling change of it,
// together make no more calls than the largest rate and burst allow.
func TestWorkersThatDisagreeKeepTheLargerRate(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	type side struct{ calls, burst int }
	for name, sides := range map[string][2]side{
		"2 and 20 a second":             {{2, 1}, {20, 1}},
		"the larger burst is the other": {{2, 6}, {20, 1}},
		"one rate, two bursts":          {{10, 1}, {10, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
				h := newHarness(t, rdb, Options{})
				var workers []*Breaker
				most := side{}
				for i, s := range sides {
					o := h.options
					o.Instance, o.Rate = fmt.Sprint("worker-", i), Rates{{Calls: s.calls, Per: second, Burst: s.burst}}
					b, err := newTestBreaker(h.rdb, o, h.clock.clock())
					if err != nil {
						t.Fatal(err)
					}
					closeAtEnd(t, b)
					if err := b.core.readSnapshot(t.Context()); err != nil {
						t.Fatal(err)
					}
					workers = append(workers, b)
					most = side{max(most.calls, s.calls), max(most.burst, s.burst)}
				}
				const runs = 2 * second
				random := rand.New(rand.NewPCG(1, 2))
				var started []time.Duration
				calls := [2]int{}
				last := 0 // the last second is the slower worker's alone
				for at := time.Duration(0); at < runs+second; {
					for _, who := range random.Perm(2) {
						if at >= runs && who == 1 {
							continue
						}
						_, err := workers[who].Allow(t.Context())
						var open *OpenError
						switch {
						case err == nil:
							started = append(started, at)
							calls[who]++
							if at >= runs {
								last++
							}
						case !errors.As(err, &open) || open.Cause != CauseRate:
							t.Fatal(err)
						}
					}
					d := time.Duration(1+random.IntN(20)) * time.Millisecond
					at += d
					h.clock.advance(d, d)
				}
				found := 0
				for i := range started {
					in := 0
					for _, s := range started[i:] {
						if s < started[i]+second {
							in++
						}
					}
					found = max(found, in)
				}
				if want := most.calls + most.burst - 1; found > want {
					t.Errorf("%d calls within one second, want at most %d (by worker: %v)", found, want, calls)
				}
				if least := int(runs/second) * most.calls * 3 / 4; len(started) < least {
					t.Errorf("%d calls in %v, want at least %d (by worker: %v)", len(started), runs, least, calls)
				}
				if last == 0 {
					t.Error("the slower worker makes no call in the second after the other has stopped")
				}
			})
		})
	}
}

// A new rate holds from its first call on, whatever the old one was.
func TestARateThatChanges(t *testing.T) {
	t.Parallel()
	rate := func(text string) func(action) action {
		return func(do action) action {
			return func(h *harness) string {
				other := *h
				o := h.options
				o.Instance, o.Rate = "worker "+text, rated(text, 0).Rate
				b, err := newTestBreaker(h.rdb, o, h.clock.clock())
				if err != nil {
					return err.Error()
				}
				closeAtEnd(h.t, b)
				other.b = b
				look(&other)
				return do(&other)
			}
		}
	}
	hourly, fast := rate("1/1h"), rate("10/s")
	runRows(t, Options{},
		row{0, hourly(try("a")), "rate"},
		row{0, fast(try("x")), "D CLOSED rate for 100ms"}, // it counts the call, at its own rate
		row{100 * time.Millisecond, fast(try("b")), "rate"},
		row{100 * time.Millisecond, hourly(try("x")), "D CLOSED rate for 1h0m0s"},
		row{150 * time.Millisecond, fast(try("x")), "D CLOSED rate for 50ms"},
		row{150 * time.Millisecond, fast(release("b")), "CLOSED"},
		row{150 * time.Millisecond, fast(try("c")), "rate"},
	)
}

// Who looks at a breaker sees the rate that spaces its calls, though no configuration of
// the workers is at hand, and when the next ones are due.
func TestStatusShowsTheRate(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	d := redistest.Name(t, "rated")
	o := rated("60/1h", 3)
	o.Destination = d
	b, err := New(t.Context(), rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	status := func() Status {
		t.Helper()
		s, err := DefaultNamespace.Get(t.Context(), rdb, d)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	unused := status()
	before, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if r := unused.Rate; r == nil || r.Interval != minute || r.Burst != 3 || r.Next.After(before) {
		t.Errorf("before any call the rate is %+v, want a call to be due", r)
	}
	for range 3 {
		if _, err := b.Allow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	after, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	s := status()
	if r := s.Rate; r == nil || r.Interval != minute || r.Burst != 3 || r.Next.Before(before.Add(minute)) || r.Next.After(after.Add(minute)) {
		t.Fatalf("after the burst the rate is %+v, want the next call a minute after %v", s.Rate, before)
	}
	if got, want := s.Rate.Due(2), s.Rate.Next.Add(2*minute); !got.Equal(want) {
		t.Errorf("the third call is due %v, want %v", got, want)
	}
	if s, err := DefaultNamespace.Get(t.Context(), rdb, d+"/alice"); err != nil || s.Rate != nil {
		t.Errorf("the rate of a key is %+v, %v", s.Rate, err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Status
	if err := json.Unmarshal(text, &back); err != nil || *back.Rate != *s.Rate {
		t.Errorf("read back %+v, %v; want %+v", back.Rate, err, s.Rate)
	}
}

// A burst that reaches further than Redis keeps instants would be unlimited.
func TestLongestBurst(t *testing.T) {
	t.Parallel()
	rate, err := ParseRate("1/366d:100")
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, redistest.Database(t).Client(t), Options{MaxInFlight: 1, Rate: Rates{rate}})
	for i := range rate.Burst {
		if _, err := h.b.Allow(patient(t)); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
	if _, err := h.b.Allow(patient(t)); err == nil {
		t.Errorf("%d calls at once are allowed, want %d", rate.Burst+1, rate.Burst)
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{
		"10/s:5": {Calls: 10, Per: second, Burst: 5}, "9/w@UTC": {Calls: 9, Per: week, Zone: "UTC"}, "9/1mo@UTC": {Calls: 9, Per: Month, Zone: "UTC"},
		"8/15m@Asia/Kolkata": {Calls: 8, Per: 15 * minute, Zone: "Asia/Kolkata"}, "500000/1d@Europe/Paris": {Calls: 500_000, Per: day, Zone: "Europe/Paris"},
		"60/1h": {Calls: 60, Per: time.Hour}, "10/s": {Calls: 10, Per: second}, "1000/15m": {Calls: 1000, Per: 15 * minute},
		" 5/d ": {Calls: 5, Per: 24 * time.Hour}, "5/7d": {Calls: 5, Per: 7 * 24 * time.Hour}, "1/1500ms": {Calls: 1, Per: 1500 * time.Millisecond},
		"1/h": {Calls: 1, Per: time.Hour}, "2/1h30m": {Calls: 2, Per: 90 * minute},
	} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseRate(got.String()); err != nil || again != want {
			t.Errorf("%q prints as %q: %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{
		"", "/", "60", "60/", "/1h", "x/1h", "60/x", "0/1h", "-1/1h", "60/0s", "60/-1h", "60/1us", "1.5/s", "60/1h/1",
		"60/1h:0", "60/1h:", "60/1h:x", "60/1h:-1", "60/1h@", "60/1h@Nowhere", "60/1h:2@UTC", "60/1h@UTC:2", "60/7h@UTC", "60/2d@UTC", "60/10ms@UTC",
		"60/1h@Local", "60/367d@UTC", "60/0d", "60/367d", "60/8785h", "1000000001/s", "1/366d:101", "1/1mo", "1/mo", "99999999999999999999/s", "60 / 1h", "60/1 h", "1e3/s",
	} {
		if r, err := ParseRate(text); err == nil {
			t.Errorf("%q is accepted as %+v", text, r)
		}
	}
	for text, want := range map[string]string{
		"0.0083/1s": "1/2m", "0.5/s": "1/2s", "1.5/s": "3/2s", "2.5/1m": "1/24s", "0.25/1h": "1/4h", "0.1/d": "1/240h", "16.6667/1m": "5/18s", "0.5/1m:3": "1/2m",
	} {
		if _, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), "not a whole number: want "+want) {
			t.Errorf("%q: %v, want the suggestion %s", text, err, want)
		}
	}
	for r, want := range map[Rate]string{
		{Calls: 60, Per: time.Hour}: "60/1h", {Calls: 10, Per: second}: "10/1s", {Calls: 3, Per: minute}: "3/1m", {}: "",
	} {
		if got := r.String(); got != want {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
}
