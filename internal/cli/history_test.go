package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/ops"

	"github.com/tidegate/tidegate/jobs"
)

// history reads a job's.
func (b *bench) history(t *testing.T, id string) []jobs.HistoryEntry {
	t.Helper()
	doc := decode[ops.Page[jobs.HistoryEntry]](t, b.run(t, "history", id, "-o", "json").ok(t))
	if doc.Next != "" {
		t.Errorf("next %q of a history, want none", doc.Next)
	}
	return doc.Items
}

func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a")
	b.run(t, "pause", "a", "--reason", "tea\x1b[2J time").ok(t)
	b.run(t, "resume", "a").ok(t)
	b.run(t, "cancel", "a").ok(t)
	by := regexp.QuoteMeta(operator())
	space := strings.Repeat(" ", len(operator())-1)
	want := regexp.MustCompile(`^VERSION  AT +STATUS     EVENT      BY` + space[1:] + `  DETAIL
1        ([0-9-]+ )?[0-9:]{8}  pending    created    -
2        ([0-9-]+ )?[0-9:]{8}  paused     paused     ` + by + `  tea\[2J time
3        ([0-9-]+ )?[0-9:]{8}  pending    resumed    ` + by + `
4        ([0-9-]+ )?[0-9:]{8}  cancelled  cancelled  ` + by + `
$`)
	if out := b.run(t, "history", "a").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	var events []string
	for i, e := range b.history(t, "a") {
		events = append(events, e.Event)
		if e.Version != i+1 || e.At.IsZero() {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	if got, want := strings.Join(events, " "), "created paused resumed cancelled"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestHistoryNotFound(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"nope", "a b"} {
		b.run(t, "history", id).want(t, 4, "", "tidegate: no job has the id \""+id+"\"; it never existed, or its retention has ended\n")
	}
}
