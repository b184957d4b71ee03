package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker/internal/policy"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// limits is the breaker's limits as JSON, without those that are empty.
func limits(h *harness) string {
	r, p, err := statusBy(patient(h.t), h.rdb, h.name(), caller{now: h.clock.redisNow()})
	if err != nil {
		h.t.Fatal(err)
	}
	return inWords(limitsOf(&r, p))
}

func inWords(l Limits) string {
	var words []string
	for source, windows := range map[string][]LimitWindow{"declared": l.Declared, "announced": l.Announced} {
		for _, w := range windows {
			text := fmt.Sprintf("%s %d per %v burst %d: used %d, left %d", source, w.Limit, w.Window, w.Burst, w.Used, w.Remaining)
			if !w.ResetsAt.IsZero() {
				text += fmt.Sprint(" until ", w.ResetsAt.Sub(time.UnixMicro(epoch)))
			}
			words = append(words, text)
		}
	}
	if l.Learned != nil {
		words = append(words, fmt.Sprintf("learned %d per %v, confidence %v", l.Learned.Calls, l.Learned.Window, l.Learned.Confidence))
	}
	return strings.Join(words, "; ")
}

func forgetLimits(h *harness) string {
	d, _, err := DefaultNamespace.decide(patient(h.t), h.rdb, h.name(), "forget", caller{now: h.clock.redisNow(), who: "ann"}, policy.Event{Kind: policy.Forgotten})
	if err != nil {
		h.t.Fatal(err)
	}
	look(h)
	return map[bool]string{true: "forgotten", false: "unchanged"}[d.reply.result == resultStored]
}

func TestLimitsAreRead(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"limits that are declared", rated("120/1h", 3), []row{
			{0, limits, ""},
			{0, tries(2, "a"), "2"},
			{0, limits, "declared 120 per 1h0m0s burst 3: used 2, left 1 until 1m0s"},
			{31 * second, limits, "declared 120 per 1h0m0s burst 3: used 1, left 2 until 1m0s"},
			{45 * second, try("b"), "rate"},
			{45 * second, limits, "declared 120 per 1h0m0s burst 3: used 2, left 1 until 1m30s"},
			{90 * second, limits, "declared 120 per 1h0m0s burst 3: used 0, left 3"},
			{90 * second, forgetLimits, "unchanged"},
			{90 * second, limits, "declared 120 per 1h0m0s burst 3: used 0, left 3"},
		}},
		{"limits that are announced", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, limits, ""},
			{0, call(told(7, minute, 100)), "CLOSED left=7/1m0s of 100"},
			{0, limits, "announced 100 per 0s burst 0: used 93, left 7 until 1m0s"},
			{0, try("flying"), "counted"},
			{0, forgetLimits, "forgotten"},
			{0, limits, ""},
			{0, forgetLimits, "unchanged"},
			{0, look, "CLOSED"},
			// The answer of a call that was in flight counts.
			{0, tell("flying", told(6, minute, 0)), "CLOSED left=6/1m0s of 0"},
			{0, limits, "announced 0 per 0s burst 0: used 0, left 6 until 1m0s"},
			{minute, limits, ""},
		}},
		// X's limit of a day: what is reached is shown until it ends, also while the API is tested.
		{"an announced limit that is reached", Options{}, []row{
			{0, call(told(0, 11*time.Hour, 10000)), "OPEN 1h0m0s budget"},
			{0, limits, "announced 10000 per 0s burst 0: used 10000, left 0 until 11h0m0s"},
			{time.Hour, look, "HALF_OPEN budget"},
			{time.Hour, limits, "announced 10000 per 0s burst 0: used 10000, left 0 until 11h0m0s"},
			{time.Hour, call(Success()), "CLOSED"},
			{time.Hour, limits, "announced 10000 per 0s burst 0: used 0, left -1"},
			// A refusal that says so itself, and one that is of another limit.
			{time.Hour, call(RateLimited(time.Hour).WithBudget(Budget{Remaining: 0, Limit: 17, Reset: 10 * time.Hour})), "OPEN 1h0m0s failures=1 hint wasted=1"},
			{time.Hour, limits, "announced 17 per 0s burst 0: used 17, left 0 until 11h0m0s"},
			{time.Hour, reset, "CLOSED"},
			{time.Hour, call(RateLimited(minute).WithBudget(Budget{Remaining: 4990, Limit: 5000, Reset: time.Hour})), "OPEN 1m0s failures=1 hint wasted=1"},
			{time.Hour, limits, "announced 17 per 0s burst 0: used 0, left -1"},
		}},
		// A learned limit is shown, and forgotten.
		{"limits that are learned", Options{MaxInFlight: 4}, []row{
			{0, both(func(h *harness) string {
				redistest.SetRecord(h.t, h.rdb, h.place.keys[0], "learned_since", epoch/1000, "learner", `{"pace":{"stage":"holding","slow":5,"length":300,"seen":3}}`)
				return ""
			}, limits), "learned 60 per 5m0s, confidence 1"},
			{0, forgetLimits, "forgotten"},
			{0, limits, ""},
		}},
		// What is forgotten does not close the breaker, and its history names the operator.
		{"forget leaves the state", Options{MaxInFlight: 4}, []row{
			{0, live, "4"},
			{0, of("k", call(told(3, minute, 100))), "CLOSED left=3/1m0s of 100"},
			{0, of("k", trip(0)), "OPEN until reset manual"},
			{0, of("k", limits), "announced 100 per 0s burst 0: used 0, left -1"},
			{0, of("k", forgetLimits), "forgotten"},
			{0, of("k", limits), ""},
			{0, of("k", look), "OPEN until reset manual"},
			{0, func(h *harness) string {
				events, err := historyOf(h.t.Context(), h.rdb, h.b.name("k"), 1)
				if err != nil || len(events) != 1 {
					h.t.Fatalf("history %v, %v", events, err)
				}
				return fmt.Sprint(events[0].From, " ", events[0].To, " ", events[0].Cause, " by ", events[0].By)
			}, "OPEN OPEN forgotten by ann"},
		}},
	})
}

func TestLimitsAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 14, 30, 0, 0, time.UTC)
	in := Limits{
		Name: "d/k", Declared: []LimitWindow{{Limit: 100, Window: 10 * second, Burst: 20, Used: 3, Remaining: 17, ResetsAt: at}},
		Announced: []LimitWindow{{Name: "hour", Remaining: -1, Limit: 60}, {Remaining: 0}},
		Named:     []NamedUse{},
		Learned:   &LearnedLimit{Calls: 60, Window: 5 * minute, Concurrency: 5, Confidence: 0.75, Windows: 2, Used: 14, ResetsAt: at, Since: at},
	}
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"d/k","declared":[{"name":null,"limit":100,"window_secs":10,"burst":20,"zone":null,"used":3,"remaining":17,"resets_at":"2030-01-31T14:30:00Z"}],` +
		`"announced":[{"name":"hour","limit":60,"window_secs":null,"burst":null,"zone":null,"used":null,"remaining":null,"resets_at":null},` +
		`{"name":null,"limit":null,"window_secs":null,"burst":null,"zone":null,"used":null,"remaining":0,"resets_at":null}],` +
		`"concurrency":null,"learned":{"calls":60,"window_secs":300,"rate_per_sec":null,"concurrency":5,"confidence":0.75,"windows":2,"used":14,"resets_at":"2030-01-31T14:30:00Z","since":"2030-01-31T14:30:00Z"},"named":[]}`
	if string(data) != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
	var out Limits
	if err := json.Unmarshal(data, &out); err != nil || fmt.Sprint(out, *out.Learned) == "" || inWords(out) == "" {
		t.Fatal(err)
	}
	if again, err := json.Marshal(out); err != nil || string(again) != want {
		t.Errorf("read and written again, %v:\n%s", err, again)
	}
}

// Pages have every destination, and of the keys those with limits of their own, each once.
func TestListLimits(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		o := Options{Destination: redistest.Name(t, "a"), MaxInFlight: 1000}
		b, err := newTestBreaker(rdb, o, newFakeClock().clock())
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, b)
		other := redistest.Name(t, "z")
		names := []string{other, o.Destination, other}
		want := map[string]int{o.Destination: 1, other: 1}
		for i := range 25 {
			key := fmt.Sprintf("k%02d", i)
			outcome := RateLimited(0) // changed, but without a limit
			if i%5 > 0 {
				outcome = told(7, minute, 100)
				want[o.Destination+"/"+key] = 1
			}
			p, err := b.Key(key).Allow(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Report(t.Context(), outcome); err != nil {
				t.Fatal(err)
			}
		}
		got := map[string]int{}
		for pages, cursor := 0, "start"; cursor != ""; pages++ {
			cursor = strings.TrimPrefix(cursor, "start")
			page, next, err := DefaultNamespace.ListLimits(t.Context(), rdb, names, cursor, 4)
			if err != nil || len(page) > 4 || pages > 20 {
				t.Fatalf("page %d after %q: %d items, %v", pages, cursor, len(page), err)
			}
			for _, l := range page {
				got[l.Name]++
			}
			cursor = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
		for _, cursor := range []string{"/", "A", "a/", "a/x", "a/-1"} {
			if _, _, err := DefaultNamespace.ListLimits(t.Context(), rdb, names, cursor, 4); !errors.Is(err, ErrInvalidCursor) {
				t.Errorf("cursor %q: %v", cursor, err)
			}
		}
	})
}
