package engine

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// What a job's refusals in a row say goes from one run to the next, with their age, until another
// result of a call clears it.
func TestRefusalsOfAJob(t *testing.T) {
	t.Parallel()
	bothRedises(t, func(t *testing.T, s *testQueue) {
		s.pending("j")
		run := func(refusals string) string {
			t.Helper()
			got := fetchReply(s, 1).Jobs[0].Fields.Refusals
			_, err := store.Apply(t.Context(), s.rdb, s.queue, "j", "", store.Outcome{Kind: store.KindReschedule, Refusals: refusals})
			s.must(err)
			return got
		}
		if got := run("1 0 1"); got != "" {
			t.Errorf("a job that was not refused has %q", got)
		}
		for range 2 { // another outcome, such as that of a job without a permit, leaves it
			got := run("")
			said, age, _ := strings.Cut(strings.TrimPrefix(got, "1 0 1"), " ")
			if ms, err := strconv.Atoi(age); said != "" || err != nil || ms < 0 || ms > int(time.Minute.Milliseconds()) {
				t.Errorf("a refused job has %q", got)
			}
		}
		run(store.NoRefusals)
		if got := run(""); got != "" {
			t.Errorf("a job whose last call was accepted has %q", got)
		}
	})
}
