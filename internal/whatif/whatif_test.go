package whatif

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/minutes"
	"github.com/tidegate/tidegate/internal/simulate"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// Jobs came in the minutes in which they ended, and as the backlog grew.
func TestArrivals(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		points []minutes.Point
		want   string // minutes
	}{
		"a backlog from before is there at once":                 {[]minutes.Point{{Backlog: 2}, {Backlog: 1, Completed: 1}, {Backlog: 0, Completed: 1}}, "0s 0s"},
		"jobs come over their minute":                            {[]minutes.Point{{Backlog: 0}, {Backlog: 1, Completed: 1, Failed: 1, Expired: 1}}, "1m0s 1m15s 1m30s 1m45s"},
		"no worker ran for minutes":                              {[]minutes.Point{{Backlog: 1}, {Backlog: -1, Completed: 1}, {Backlog: -1}, {Backlog: 3}}, "0s 1m0s 2m0s 3m0s"},
		"a backlog is counted before or after the ends":          {[]minutes.Point{{Backlog: 9}, {Backlog: 8, Completed: 3}, {Backlog: 4, Completed: 2}, {Backlog: 4}}, "0s 0s 0s 0s 0s 0s 0s 0s 0s"},
		"a client cancelled jobs":                                {[]minutes.Point{{Backlog: 3}, {Backlog: 0}, {Backlog: 2}}, "0s 0s 0s 2m0s 2m30s"},
		"nothing came":                                           {[]minutes.Point{{Backlog: 0}, {Backlog: -1}}, ""},
		"what ended in a minute that is not over is not counted": {[]minutes.Point{{Backlog: 1}, {Backlog: -1, Completed: 1}}, "0s"},
	} {
		got, err := arrivals(row.points)
		var texts []string
		for _, at := range got {
			texts = append(texts, at.String())
		}
		if text := strings.Join(texts, " "); text != row.want || err != nil {
			t.Errorf("%s: %s, want %s (%v)", name, text, row.want, err)
		}
	}
	if _, err := arrivals([]minutes.Point{{Backlog: MaxJobs + 1}}); err == nil {
		t.Error("more than a simulation takes")
	}
}

// What workers and the breaker keep in Redis becomes a simulation.
func TestRead(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	s := Source{Redis: rdb, Namespace: store.DefaultNamespace}
	if _, err := s.Read(t.Context(), "shop"); !errors.Is(err, ErrNoJobs) {
		t.Error("without a record:", err)
	}
	if _, err := s.Learned(t.Context(), "shop"); !errors.Is(err, ErrNoLimit) {
		t.Error("nothing learned:", err)
	}
	now := time.Now().Add(-2 * time.Hour).Truncate(time.Minute)
	begin := now
	count := func(name string, n int) {
		t.Helper()
		if err := rdb.HIncrBy(t.Context(), s.Namespace.MinutesKey("shop", now.Unix()/3600), store.MinuteField(now.UTC().Minute(), name), int64(n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b, err := breaker.NewVirtual(t.Context(), rdb, breaker.Options{Destination: "shop", FailureThreshold: 2, Cooldown: 10 * time.Minute, NoLearning: true, MaxInFlight: 4}, func() time.Time { return now }, func() float64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	call := func(o breaker.Outcome) {
		t.Helper()
		p, err := b.Allow(t.Context())
		if err == nil {
			_, err = p.Report(t.Context(), o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	count("backlog", 80)
	for range 4 { // 20 calls, and a window of 10 minutes
		count("calls", 22)
		count("limited", 2)
		count("completed", 20)
		for range 20 {
			call(breaker.Answered(200))
		}
		for range 2 {
			call(breaker.RateLimited(0))
		}
		now = now.Add(10*time.Minute + time.Second)
		call(breaker.Answered(200))
	}
	for range 10 { // and an outage of 20 minutes
		call(breaker.Answered(502))
	}
	down := now.Sub(begin)
	now = now.Add(20 * time.Minute)
	call(breaker.Answered(200))
	r, err := s.Read(t.Context(), "shop")
	if err != nil || r.API != "outage:"+down.String()+"+20m0s,window:20/10m" || r.From != "observed" || len(r.Arrivals) < 80 || r.Span() < 2*time.Hour {
		t.Fatalf("%v: %s %s, %d jobs in %s", err, r.API, r.From, len(r.Arrivals), r.Span())
	}
	o := r.Options(simulate.Options{Breaker: breaker.Options{Cooldown: 5 * time.Minute, NoLearning: true}}, 3)
	if o.Slots != 4 || o.For != 2*r.Span() || o.Latency != 200*time.Millisecond {
		t.Errorf("%+v", o)
	}
	got, err := simulate.Run(t.Context(), o)
	if err != nil || got.Wasted == 0 || got.Left != 0 || got.Down == 0 || got.Opened < 4 {
		got.Points = nil
		t.Errorf("%v %+v", err, got)
	}
}

// The model is of what is known best.
func TestLimits(t *testing.T) {
	t.Parallel()
	at := time.Now()
	declared := []breaker.LimitWindow{{Limit: 60, Window: time.Hour}, {Limit: 500, Window: 24 * time.Hour, Zone: "UTC"}}
	announced := []breaker.LimitWindow{{Limit: 50, Remaining: 3, ResetsAt: at.Add(40 * time.Second)}}
	for want, limits := range map[string]breaker.Limits{
		"window:20/10m,concurrency:3 learned":      {Learned: &breaker.LearnedLimit{Calls: 20, Window: 10*time.Minute + 312*time.Millisecond, Concurrency: 3}, Announced: announced[:0], Declared: declared},
		"bucket:1/500ms learned":                   {Learned: &breaker.LearnedLimit{RatePerSec: 2}},
		"window:50/1m,hints:ratelimit announced":   {Announced: announced, Declared: declared},
		"sliding:60/1h,window:500/1d@UTC declared": {Declared: declared},
		" declared": {},
	} {
		got, from := (&Record{}).limitsOf(breaker.Outlook{Now: at, Limits: limits})
		if text := strings.Join(got, ",") + " " + from; text != want {
			t.Errorf("%s, want %s", text, want)
		}
		for _, part := range got {
			if _, err := simulate.ParseAPI(part); err != nil {
				t.Error(err)
			}
		}
	}
	hinted := &Record{Incidents: []breaker.Incident{{Cause: breaker.CauseHint}}}
	if got, _ := hinted.limitsOf(breaker.Outlook{Limits: breaker.Limits{Declared: declared[:1]}}); !slices.Equal(got, []string{"sliding:60/1h", "hints:retry-after"}) {
		t.Error(got)
	}
}
