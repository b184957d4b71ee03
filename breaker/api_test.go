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

func TestOptionsTellEverythingThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := New(t.Context(), nil, Options{
		Destination: "Bad{name}", FailureThreshold: -1, Cooldown: -time.Second, CooldownMultiplier: 0.5,
		MaxCooldown: -time.Minute, ProbeTimeout: time.Microsecond, RefreshInterval: time.Millisecond,
	})
	want := `breaker: options: destination "Bad{name}" is not valid: want 1 to 63 of a-z, 0-9 and '-', not starting with '-'
FailureThreshold is -1: want at least 1
Cooldown is -1s: want at least 1ms
CooldownMultiplier is 0.5: want 1 to 1000
MaxCooldown is -1m0s, less than Cooldown (-1s): raise it, or lower Cooldown
ProbeTimeout is 1µs: want at least 1ms, and longer than a call can take
RefreshInterval is 1ms: want at least 10ms
breaker: the Redis client cannot be used: it is nil`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	rdb := redistest.Embedded(t)
	for _, name := range []string{"", "-a", "a b", "a/", "ä", strings.Repeat("a", 64)} {
		if _, err := New(t.Context(), rdb, Options{Destination: name}); err == nil {
			t.Errorf("destination %q is accepted", name)
		}
		if _, err := DefaultNamespace.Get(t.Context(), rdb, name); err == nil {
			t.Errorf("Get of destination %q is accepted", name)
		}
		if _, err := historyOf(t.Context(), rdb, name, 1); err == nil {
			t.Errorf("History of destination %q is accepted", name)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	o := Options{Destination: "a"}.withDefaults()
	if o.FailureThreshold != 3 || o.Cooldown != 5*time.Minute || o.CooldownMultiplier != 1 ||
		o.MaxCooldown != time.Hour || o.ProbeTimeout != 35*time.Second || o.RefreshInterval != time.Second {
		t.Errorf("defaults: %+v", o)
	}
	if err := o.validate(); err != nil {
		t.Error(err)
	}
}

func TestTripIsValidated(t *testing.T) {
	t.Parallel()
	_, err := DefaultNamespace.Trip(t.Context(), redistest.Embedded(t), "api", TripOptions{For: -time.Second, Reason: strings.Repeat("é", 501)})
	want := `breaker: trip api: the time is -1s: want more than 0, or 0 for "until it is reset"
the reason has 501 characters: want at most 500`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestOperatorsSeeWhoAndWhy(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		d := redistest.Name(t, "operator")
		reason := `maintenance "v2" <b> \ ` + "\n\u2028é 日本 \xff"
		s, err := DefaultNamespace.Trip(t.Context(), rdb, d, TripOptions{For: 10 * time.Minute, Reason: reason, By: "ann@office"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := DefaultNamespace.Get(t.Context(), rdb, d)
		if err != nil {
			t.Fatal(err)
		}
		wantReason := strings.ToValidUTF8(reason, "\uFFFD")
		if s.Reason != wantReason || got.Reason != wantReason || got.TrippedBy != "ann@office" || got.Name != d {
			t.Errorf("status: %+v", got)
		}
		if got.Remaining.Truncate(time.Millisecond) > 10*time.Minute || got.Remaining < 9*time.Minute ||
			time.Until(got.OpenUntil) > got.Remaining {
			t.Errorf("remaining %v until %v", got.Remaining, got.OpenUntil)
		}
		if since := time.Since(got.OpenedAt).Abs(); since > time.Minute || got.OpenUntilRedis.Sub(got.OpenedAt).Round(time.Second) != 10*time.Minute {
			t.Errorf("opened at %v until %v", got.OpenedAt, got.OpenUntilRedis)
		}
		events, err := historyOf(t.Context(), rdb, d, 0)
		if err != nil || len(events) != 1 || events[0].Reason != wantReason || events[0].By != "ann@office" {
			t.Errorf("history: %+v, %v", events, err)
		}
		b := start(t, rdb, Options{Destination: d})
		_, err = b.Allow(t.Context())
		var open *OpenError
		if !errors.As(err, &open) || open.Reason != wantReason || open.Cause != CauseManual || open.Incident != got.Incident {
			t.Errorf("Allow: %+v", open)
		}
		if s, err := DefaultNamespace.Reset(t.Context(), rdb, d, ""); err != nil || s.State != Closed || s.Reason != "" || s.Incident != "" {
			t.Errorf("reset: %+v, %v", s, err)
		}
	})
}

func TestOperatorsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	rdb := s.Client(t)
	_, getErr := DefaultNamespace.Get(t.Context(), rdb, "api")
	_, tripErr := DefaultNamespace.Trip(t.Context(), rdb, "api", TripOptions{})
	_, resetErr := DefaultNamespace.Reset(t.Context(), rdb, "api", "")
	_, historyErr := historyOf(t.Context(), rdb, "api", 1)
	for name, err := range map[string]error{"get": getErr, "trip": tripErr, "reset": resetErr, "history": historyErr} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}

func TestStatusAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 12, 21, 14, 30, 0, 5e6, time.UTC)
	open := Status{
		Name: "deviantart", State: Open, Failures: 3, LastFailure: at, Generation: 1_763_690_400_123_457,
		OpenUntil: time.Now(), OpenUntilRedis: at.Add(5 * time.Minute), Remaining: 4*time.Minute + 12*time.Second + time.Microsecond,
		Incident: "deviantart-1763690400123457", Cause: CauseProbe, IncidentCause: CauseThreshold, OpenedAt: at, Probes: 1, Wasted: 4,
		Level: 2, Rescheduled: 7, Instances: []string{"a:1", "b:2"},
		Budget: &Budget{Remaining: 3, Reset: 1500 * time.Millisecond, Limit: 60},
	}
	data, err := json.Marshal(open)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	for text, into := range map[string]*map[string]any{
		string(data): &got,
		`{"name":"deviantart","state":"OPEN","failures":3,"last_failure":"2025-12-21T14:30:00.005Z",` +
			`"generation":1763690400123457,"open_until":"2025-12-21T14:35:00.005Z","asked_until":null,"until_reset":false,"cooldown_remaining_ms":252000,` +
			`"incident":"deviantart-1763690400123457","cause":"probe","incident_cause":"threshold","reason":"","tripped_by":"","streak":0,"streak_limit":0,"streak_of":"","suggested_rate":"",` +
			`"opened_at":"2025-12-21T14:30:00.005Z","probes":1,"wasted":4,"probe_by":"","probe_until":null,"level":2,"slow_start":0,` +
			`"budget":{"remaining":3,"reset_ms":1500,"limit":60},"in_flight":0,"concurrency":0,"rate":null,"forced":"","forced_until":null,` +
			`"reserve":"","rescheduled":7,"instances":["a:1","b:2"]}`: &want,
	} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
	var back Status
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	open.OpenUntil, open.Remaining = time.Time{}, 252000*time.Millisecond
	if diff := cmp.Diff(open, back); diff != "" {
		t.Errorf("read back:\n%s", diff)
	}
	tripped := (&record{State: policy.State{Circuit: policy.Circuit{State: policy.Open, Cause: CauseManual}}}).statusAt(0, time.Now())
	data, err = json.Marshal(tripped)
	for _, want := range []string{`"open_until":null`, `"until_reset":true`, `"cooldown_remaining_ms":0`, `"instances":[]`} {
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("tripped until reset: %s, %v: want %s", data, err, want)
		}
	}
	data, err = json.Marshal(Status{State: Open, Remaining: time.Microsecond})
	if err != nil || !strings.Contains(string(data), `"cooldown_remaining_ms":1,`) {
		t.Errorf("nearly over: %s, %v", data, err)
	}
	if err := json.Unmarshal([]byte(`{"state":"open"}`), &back); err == nil {
		t.Error("an unknown state is accepted")
	}
	if _, err := json.Marshal(Status{State: 9}); err == nil {
		t.Error("an unknown state is printed")
	}
}

func TestEventAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2025, 12, 21, 14, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		event Event
		want  string
	}{
		{
			Event{At: at, Name: "a", From: Closed, To: Open, Cause: CauseManual, Incident: "a-7", By: "ann", Reason: "x", Generation: 7, OpenedAt: at},
			`{"at":"2025-12-21T14:30:00Z","name":"a","from":"CLOSED","to":"OPEN","cause":"manual","incident":"a-7","by":"ann","reason":"x",` +
				`"generation":7,"failures":0,"opened_at":"2025-12-21T14:30:00Z","probes":0,"wasted":0,"rescheduled":0}`,
		},
		{
			Event{At: at, Name: "a", From: HalfOpen, To: Open, OpenUntil: at},
			`{"at":"2025-12-21T14:30:00Z","name":"a","from":"HALF_OPEN","to":"OPEN","cause":"","incident":"","by":"",` +
				`"generation":0,"failures":0,"open_until":"2025-12-21T14:30:00Z","probes":0,"wasted":0,"rescheduled":0}`,
		},
	} {
		data, err := json.Marshal(c.event)
		if err != nil || string(data) != c.want {
			t.Errorf("got\n%s, %v\nwant\n%s", data, err, c.want)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  OpenError
		want string
	}{
		{
			OpenError{Name: "api", Destination: "api", State: Open, Until: time.Now(), RetryAfter: 4*time.Minute + 11*time.Second + 1, Cause: CauseThreshold},
			"breaker api is OPEN (threshold): ask again in 4m12s",
		},
		{
			OpenError{Name: "api", Destination: "api", State: Open, Until: time.Now(), RetryAfter: 1500 * time.Microsecond, Cause: CauseHint},
			"breaker api is OPEN (hint): ask again in 2ms",
		},
		{
			OpenError{Name: "api", Destination: "api", State: Open, RetryAfter: time.Hour, Cause: CauseManual, Reason: "maintenance"},
			"breaker api is OPEN until it is reset (manual: maintenance)",
		},
		{
			OpenError{Name: "api", Destination: "api", State: HalfOpen, Until: time.Now(), RetryAfter: 30 * time.Second},
			"breaker api is HALF_OPEN and its probe is taken: ask again in 30s",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
		if !errors.Is(&c.err, ErrOpen) {
			t.Errorf("%v is not ErrOpen", &c.err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(Closed, Open, HalfOpen, State(7)); got != "CLOSED OPEN HALF_OPEN State(7)" {
		t.Error(got)
	}
	if got := fmt.Sprint(Success(), Failure(), Outcome{}, RateLimited(0), RateLimited(time.Second)); got != "success failure neutral limited limited 1s" {
		t.Error(got)
	}
}

// Generations are microseconds: 16 digits, of which Lua would keep 14.
func TestNumbersKeepAllTheirDigits(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		h := newHarness(t, rdb, Options{NoLearning: true, FailureThreshold: 1, Cooldown: time.Second})
		h.clock.advance(0, 457*time.Microsecond)
		permit, err := h.b.Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := permit.Report(t.Context(), RateLimited(0))
		if err != nil {
			t.Fatal(err)
		}
		const generation = "1763690400123457"
		if fmt.Sprint(s.Generation) != generation || s.Incident != h.place.name+"-"+generation {
			t.Errorf("generation %d, incident %s", s.Generation, s.Incident)
		}
		// The next millisecond: a cooldown is never a fraction short.
		if want := time.UnixMilli(1763690400123 + 1 + 1000); !s.OpenUntilRedis.Equal(want) {
			t.Errorf("open until %v, want %v", s.OpenUntilRedis, want)
		}
		hash, err := rdb.HGetAll(t.Context(), h.place.keys[0]).Result()
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal([]byte(hash["record"]), &fields); err != nil {
			t.Fatal(err)
		}
		ofRules := map[string]any{
			"state": "OPEN", "cause": "threshold", "incident_cause": "threshold", "open_until": 1763690401124., "opened_at": 1763690400123., "last_cooldown": 1000.,
		}
		if diff := cmp.Diff(ofRules, fields); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		want := map[string]string{
			"record": hash["record"], "record_sha1": hash["record_sha1"], "write": hash["write"], "state": "OPEN", "cause": "threshold", "open_until": "1763690401124",
			"incident": h.place.name + "-" + generation, "instances": "worker-1", "failures": "1", "last_failure": "1763690400123", "wasted": "1",
			"updated_at": "1763690400123", "generation": generation, "revision": generation, "step": "1",
		}
		if diff := cmp.Diff(want, hash); diff != "" {
			t.Errorf("hash (-want +got):\n%s", diff)
		}
		// The same instant again: generations grow by one, exactly.
		for i := range uint64(3) {
			status := h.byHand(policy.Tripped, "ann", 1000, "")
			if want := s.Generation + i + 1; status.Generation != want {
				t.Errorf("generation %d, want %d", status.Generation, want)
			}
		}
		version, err := rdb.HGet(t.Context(), h.place.keys[1], ":version").Result()
		if err != nil || version != "1763690400123460" {
			t.Errorf("version %s, %v", version, err)
		}
		// A bigger number than the clock's is never gone below.
		set("generation", "9007199254740000")(h)
		if status := h.byHand(policy.Reset, "ann", 0, ""); status.Generation != 9007199254740001 {
			t.Errorf("generation %d after 9007199254740000", status.Generation)
		}
	})
}

func TestKeysAreInOneSlotAndNoKeyCanCollide(t *testing.T) {
	t.Parallel()
	p := placeOf("deviantart", "")
	for _, key := range append(p.keys, p.channel) {
		if !strings.HasPrefix(key, "tidegate:{deviantart}:") {
			t.Errorf("%s is not in the destination's slot", key)
		}
	}
	if p.keys[0] != "tidegate:{deviantart}:breaker" || p.keys[1] != "tidegate:{deviantart}:notclosed" || p.channel != "tidegate:{deviantart}:breaker:events" {
		t.Errorf("names that others rely on: %+v", p)
	}
	// A budget owner may be called anything: its hash is breaker:<key>.
	for _, key := range p.keys[1:] {
		if strings.HasPrefix(key, p.keys[0]+":") {
			t.Errorf("%s could be the hash of a key", key)
		}
	}
}

func TestUnusedBreakerLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	b := start(t, rdb, Options{Destination: "api"})
	if err := healthyCall(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if s, err := DefaultNamespace.Get(t.Context(), rdb, "api"); err != nil || s.State != Closed || s.Name != "api" {
		t.Errorf("status: %+v, %v", s, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}
