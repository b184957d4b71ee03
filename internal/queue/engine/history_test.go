package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"

	"github.com/google/go-cmp/cmp"
)

// entry is one line of a job's history, as it is stored, with its text.
type entry struct {
	Version               int
	At                    int64
	Status, Event, Detail string
	By                    string
}

func (e entry) String() string {
	text := fmt.Sprint(e.Version, " ", e.Status, " ", e.Event)
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.By != "" {
		text += " by " + e.By
	}
	return text
}

// history returns what is stored of a job's history, and checks that the number of
// the last version is kept beside it.
func (s *testQueue) history(id string) []entry {
	s.t.Helper()
	m, err := s.rdb.HGetAll(context.Background(), store.TaskKey(s.queue, id)).Result()
	s.must(err)
	var out []entry
	if m[store.FieldHistory] != "" {
		for _, v := range store.Versions(m[store.FieldHistory]) {
			out = append(out, entry{v.Version, v.At, v.Status, v.Event, words.Detail(v), v.By})
		}
		if want := strings.Count(m[store.FieldHistory], "\n") + 1; len(out) != want {
			s.t.Fatalf("history of %s: only %d of %d lines are readable: %q", id, len(out), want, m[store.FieldHistory])
		}
	}
	last := ""
	if len(out) > 0 {
		last = fmt.Sprint(out[len(out)-1].Version)
	}
	if m[store.FieldVersions] != last {
		s.t.Errorf("the record of %s says that it is version %q, its history ends with %q", id, m[store.FieldVersions], last)
	}
	return out
}

// story is a job's history in words.
func (s *testQueue) story(id string) []string {
	s.t.Helper()
	var out []string
	for _, e := range s.history(id) {
		out = append(out, e.String())
	}
	return out
}

// rerun reschedules a job n times without delay, as a worker does that takes it
// each time.
func (s *testQueue) rerun(id string, n int, o store.Outcome) (last store.Applied) {
	s.t.Helper()
	o.Kind = store.KindReschedule
	for range n {
		if got := fetchIDs(s, 1); len(got) != 1 || got[0] != id {
			s.t.Fatalf("took %v, want %s", got, id)
		}
		last = applyToJob(s, id, o)
	}
	return last
}

// The history keeps the last 99 versions after the first, however often a job is
// rescheduled; the numbers go on.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		const times = 150 // with two versions each: it started, it was put off
		s.pending("a")
		for n := range times {
			s.rerun("a", 1, store.Outcome{Reason: "later"})
			want := min(99, 2*(n+1))
			if got := len(s.history("a")); got != want {
				t.Fatalf("%d lines after %d reschedules, want %d", got, n+1, want)
			}
		}
		last := 2*times + 1 // the first version, "created", is not stored
		for i, e := range s.history("a") {
			if want := last - 98 + i; e.Version != want {
				t.Errorf("line %d is version %d, want %d", i+1, e.Version, want)
			}
			event, detail := "rescheduled", fmt.Sprintf("available_at +0s, count %d, later", e.Version/2)
			if e.Version%2 == 0 {
				event, detail = "started", ""
			}
			if e.Event != event || e.Detail != detail {
				t.Errorf("version %d is %s %q, want %s %q", e.Version, e.Event, e.Detail, event, detail)
			}
		}
		if got := s.fields("a")[store.FieldReschedules]; got != fmt.Sprint(times) {
			t.Errorf("%s reschedules, want %d", got, times)
		}
	})
}

// ahead is how far the job's time lay ahead when its latest version but n was
// written, as the history tells it.
func (s *testQueue) ahead(id string, n int) string {
	s.t.Helper()
	h := s.history(id)
	at := s.millisOf(s.fields(id)[store.FieldAvailableAt])
	seconds := strconv.FormatFloat(float64(at-h[len(h)-1-n].At)/1000, 'f', 1, 64)
	return "+" + strings.TrimSuffix(seconds, ".0") + "s"
}

// The history has the same times as the job's record, to the millisecond.
func TestHistoryHasTimes(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.pending("a")
		fetchIDs(s, 1)
		started := s.fields("a")[store.FieldStartedAt]
		before := s.now()
		applyToJob(s, "a", store.Outcome{Kind: store.KindFail, Error: "boom"})
		h := s.history("a")
		if len(h) != 2 || fmt.Sprint(h[0].At) != started {
			t.Fatalf("history %v, want that it started at %s", h, started)
		}
		s.between("the end", fmt.Sprint(h[1].At), before, s.now())
		if got := s.fields("a")[store.FieldEndedAt]; got != fmt.Sprint(h[1].At) {
			t.Errorf("it failed at %d by its history, at %s by its record", h[1].At, got)
		}
	})
}

// Delays are told in a form that people can read, and texts of others cannot break
// the lines.
func TestHistoryDetails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		outcome store.Outcome
		delay   time.Duration
		want    string
	}{
		{store.Outcome{Kind: store.KindReschedule}, 1500 * time.Millisecond, "available_at {ahead}, count 1"},
		{store.Outcome{Kind: store.KindReschedule, Reason: "breaker_open d"}, time.Minute, "available_at {ahead}, count 1, breaker d open"},
		{store.Outcome{Kind: store.KindReschedule}, 400 * 24 * time.Hour, "available_at {ahead}, count 1"},
		{store.Outcome{Kind: store.KindReschedule, Reason: "a \"b\"\n{c}\x01 é"}, time.Second, "available_at {ahead}, count 1, a \"b\"\n{c}\x01 é"},
		{store.Outcome{Kind: store.KindRetry, Reason: "retry 1 3 failure"}, 10 * time.Second, "next_retry_at {ahead}, retry 1 of 3 after failure"},
		{store.Outcome{Kind: store.KindRetry}, 10 * time.Second, "next_retry_at {ahead}"},
		{store.Outcome{Kind: store.KindFail, Error: "line 1\nline 2"}, 0, "line 1\nline 2"},
	} {
		t.Run(fmt.Sprint(tc.outcome.Kind, tc.delay, tc.outcome.Reason), func(t *testing.T) {
			t.Parallel()
			bothRedises(t, func(t *testing.T, s *testQueue) {
				s.active("a")
				o := tc.outcome
				if tc.delay > 0 {
					o.At = time.Now().Add(tc.delay)
				}
				applyToJob(s, "a", o)
				h, want := s.history("a"), tc.want
				if strings.Contains(want, "{ahead}") {
					want = strings.ReplaceAll(want, "{ahead}", s.ahead("a", 0))
				}
				if len(h) != 2 || h[1].Detail != want {
					t.Errorf("history %v, want one that ends with %q", h, want)
				}
			})
		})
	}
}

// max_reschedules bounds the reschedules of one job exactly: the last that is
// allowed works, the next one fails the job and counts nothing.
func TestMaxReschedules(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		limit := 100
		s.pending("a")
		if last := s.rerun("a", limit, store.Outcome{Limit: &limit}); last.Kind != store.KindReschedule || last.Count != limit {
			t.Fatalf("reschedule %d: %+v", limit, last)
		}
		if last := s.rerun("a", 1, store.Outcome{Limit: &limit, Error: "rate limited"}); last.Kind != store.KindFail || last.Count != limit {
			t.Errorf("one more: %+v, want that it fails", last)
		}
		if diff := cmp.Diff(map[string]string{"failed": "a", "a": "failed"}, s.look()); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
		f := s.fields("a")
		if f[store.FieldLastError] != "max reschedules (100) exceeded" || f[store.FieldReschedules] != "100" || f[store.FieldAttempt] != "" {
			t.Errorf("record %v", f)
		}
		story := s.story("a")
		if got := story[len(story)-1]; got != "203 failed failed: max reschedules (100) exceeded" {
			t.Errorf("its history ends with %q", got)
		}
	})
}
