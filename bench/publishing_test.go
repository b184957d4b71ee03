package bench

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	runs     = flag.Int("runs", 3, "BenchmarkPublishing: runs of each; the report has medians")
	parallel = flag.Int("at-a-time", 12, "BenchmarkPublishing: how many run at the same time")
	only     = flag.String("only", "", "BenchmarkPublishing: only the APIs whose name contains this")
	onlyOf   = flag.String("contenders", "", "BenchmarkDrain, BenchmarkPublishing: only these, by name, with commas")
	jitter   = flag.Duration("jitter", 0, "BenchmarkPublishing: the longest random pause that bare asynq adds to each retry")
)

// BenchmarkPublishing compares what becomes of a backlog at a rate-limited API: with
// plain asynq, with asynq and the shared breaker that one writes first, and with
// Tidegate. Each run has an API over HTTP, a redis-server and worker processes of its
// own. -write also writes the plot.
func BenchmarkPublishing(b *testing.B) {
	if *runs < 1 || *parallel < 1 || *jitter < 0 {
		b.Fatal("-runs and -at-a-time must be above 0, -jitter not below")
	}
	if *write && (*only != "" || *onlyOf != "" || *jitter != 0) {
		b.Fatal("-write is for the whole comparison: leave -only, -contenders and -jitter out")
	}
	chosen := slices.Clone(contenders)
	if *onlyOf != "" {
		names := strings.Split(*onlyOf, ",")
		chosen = slices.DeleteFunc(chosen, func(c contender) bool { return !slices.Contains(names, c.name) })
		if len(chosen) != len(names) {
			b.Fatalf("-contenders: not all of %q are contenders", names)
		}
	}
	cells := cells(*only, chosen)
	if len(cells) == 0 {
		b.Fatalf("no API's name contains %q", *only)
	}
	measureAll(b, cells, *runs, *parallel, *jitter)
	report(b, "benchmarks.md", "publishing", reportPublishing(cells, *runs, *parallel))
}

// TestEachContenderPublishesEverythingOnce runs a backlog that the API takes at once,
// with real processes.
func TestEachContenderPublishesEverythingOnce(t *testing.T) {
	t.Parallel()
	const few = 20
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one := &cell{api: apis()[0], hints: true, contender: c, jobs: few}
			o := one.measure(t, 0)
			if o.published != few || o.calls != few || o.twice != 0 || o.wasted != 0 || o.deferred != 0 || o.archived != 0 {
				t.Errorf("outcome = %+v, want %d jobs published by as many calls", o, few)
			}
			if len(o.at) != few || o.took != o.at[few-1] || o.trips < 1 || o.commands < few {
				t.Errorf("outcome = %+v, want the instants of all and commands of Redis", o)
			}
		})
	}
}

func TestIdealsAreTheLimitersOwn(t *testing.T) {
	t.Parallel()
	want := map[string][3]time.Duration{ // of calls quota-1, quota and 2*quota
		"fixed window":   {0, window, 2 * window},
		"sliding window": {0, window, 2 * window},
		"token bucket":   {0, window / quota, window + window/quota},
		"penalty":        {0, window, 2 * window},

		"5 at once":        {11 * 10 * meanLatency, 12 * 10 * meanLatency, 24 * 10 * meanLatency},
		"two windows":      {5 * (window / 6), 2 * window, 4 * window},
		"halves":           {0, window, 2 * window},
		"others take 30 %": {window, window, 2 * window},
	}
	for _, a := range apis() {
		got := [3]time.Duration{a.earliest(quota - 1), a.earliest(quota), a.earliest(2 * quota)}
		if got != want[a.name] {
			t.Errorf("%s: %v, want %v", a.name, got, want[a.name])
		}
	}
}

func TestWholeSecondIsNeverEarlierAndAtMostOneLater(t *testing.T) {
	t.Parallel()
	base := time.Unix(1000, 0)
	for _, tc := range []struct{ now, delay, want time.Duration }{
		{0, time.Second, time.Second},
		{0, time.Millisecond, time.Second},
		{300 * time.Millisecond, 700 * time.Millisecond, 700 * time.Millisecond},
		{300 * time.Millisecond, 701 * time.Millisecond, 1700 * time.Millisecond},
	} {
		if got := wholeSecond(base.Add(tc.now), tc.delay); got != tc.want {
			t.Errorf("wholeSecond(+%s, %s) = %s, want %s", tc.now, tc.delay, got, tc.want)
		}
	}
}

func TestTheMiddleRunCountsUnfinishedOnesAsTheSlowest(t *testing.T) {
	t.Parallel()
	run := func(published int, took time.Duration) outcome { return outcome{published: published, took: took} }
	for _, tc := range []struct {
		runs []outcome
		want outcome
	}{
		{[]outcome{run(9, 3), run(9, 1), run(9, 2)}, run(9, 2)},
		{[]outcome{run(5, 0), run(9, 1), run(9, 2)}, run(9, 2)},
		{[]outcome{run(5, 0), run(9, 1), run(4, 0)}, run(5, 0)},
	} {
		c := &cell{runs: tc.runs, jobs: 9}
		if diff := cmp.Diff(tc.want, c.middle(), cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("middle of %v (-want +got):\n%s", tc.runs, diff)
		}
	}
}
