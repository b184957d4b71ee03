package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// actionTable says what comes of each action in each state: "done" or "asked" and
// the status after, or why it is refused.
var actionTable = []struct{ life, cancel, pause, resume, retry, expire string }{
	{"waiting", "done cancelled", "done paused", "it is waiting", "it is waiting", "done expired"},
	{"pending", "done cancelled", "done paused", "it is pending", "it is pending", "done expired"},
	{"scheduled", "done cancelled", "done paused", "it is pending", "it is pending", "done expired"},
	{"rescheduled", "done cancelled", "done paused", "it is pending", "it is pending", "done expired"},
	{"retry_pending", "done cancelled", "done paused", "it is retry_pending", "it is retry_pending", "done expired"},
	{"running", "asked running", "asked running", "it is running", "it is running", "it is running"},
	{"running, cancel asked", "asked running", "it is running and about to be cancelled", "it is running", "it is running", "it is running"},
	{"running, pause asked", "asked running", "asked running", "done running", "it is running", "it is running"},
	{"paused while waiting", "done cancelled", "it is paused", "done waiting", "it is paused", "done expired"},
	{"paused while pending", "done cancelled", "it is paused", "done pending", "it is paused", "done expired"},
	{"paused while scheduled", "done cancelled", "it is paused", "done pending", "it is paused", "done expired"},
	{"paused while rescheduled", "done cancelled", "it is paused", "done pending", "it is paused", "done expired"},
	{"paused while retry_pending", "done cancelled", "it is paused", "done retry_pending", "it is paused", "done expired"},
	{"completed", "it is completed", "it is completed", "it is completed", "it is completed", "it is completed"},
	{"failed", "it is failed", "it is failed", "it is failed", "done pending", "it is failed"},
	{"cancelled", "it is cancelled", "it is cancelled", "it is cancelled", "done pending", "it is cancelled"},
	{"cancelled while retry_pending", "it is cancelled", "it is cancelled", "it is cancelled", "done pending", "it is cancelled"},
	{"cancelled while waiting", "it is cancelled", "it is cancelled", "it is cancelled", "done waiting", "it is cancelled"},
	{
		"expired", "it is expired", "it is expired", "it is expired",
		"it is expired and expired jobs cannot be run again; enqueue a new one", "it is expired",
	},
}

// verbs are how errors and histories call what was done.
var verbs = map[jobs.Action]string{
	jobs.ActionCancel: "cancelled", jobs.ActionPause: "paused", jobs.ActionResume: "resumed",
	jobs.ActionRetry: "retried", jobs.ActionExpire: "expired",
}

// Every action in every state: what is answered, what the job is then, and what
// its history says.
func TestActions(t *testing.T) {
	t.Parallel()
	if len(actionTable) != len(lives) {
		t.Fatalf("the table has %d states, there are %d", len(actionTable), len(lives))
	}
	server := redistest.Start(t)
	for i, row := range actionTable {
		l := lives[i]
		if row.life != l.name {
			t.Fatalf("row %d is of %s, the state is %s", i, row.life, l.name)
		}
		for a, want := range map[jobs.Action]string{
			jobs.ActionCancel: row.cancel, jobs.ActionPause: row.pause, jobs.ActionResume: row.resume,
			jobs.ActionRetry: row.retry, jobs.ActionExpire: row.expire,
		} {
			t.Run(fmt.Sprintf("%s %s", a, l.name), func(t *testing.T) {
				t.Parallel()
				rdb := server.Client(t)
				testAction(t, benchOn(t, rdb), l, a, want)
			})
		}
	}
}

func testAction(t *testing.T, b *bench, l life, a jobs.Action, want string) {
	t.Helper()
	id := l.make(b).ID
	before, history := b.get(id), b.history(id)
	if before.Status != l.status {
		t.Fatalf("the job is %s, want %s", before.Status, l.status)
	}
	got := b.act(a, id, jobs.By("alice"), jobs.Because("a reason"))
	now := b.get(id)
	if got.ID != id || got.Status != l.status {
		t.Errorf("answer for %s in status %s, want %s, %s", got.ID, got.Status, id, l.status)
	}
	verb, status, _ := strings.Cut(want, " ")
	if verb == "it" { // refused
		sentence := fmt.Sprintf("job %s cannot be %s: %s", id, verbs[a], want)
		refused, ok := errors.AsType[*jobs.StatusError](got.Err)
		if got.Done || got.Asked || !ok || got.Err.Error() != sentence || !errors.Is(got.Err, jobs.ErrStatus) ||
			refused.ID != id || refused.Action != a || refused.Status != l.status {
			t.Errorf("answer %+v, want %q", got, sentence)
		}
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("a refused %s changed the job (-before +after):\n%s", a, diff)
		}
		if diff := cmp.Diff(history, b.history(id)); diff != "" {
			t.Errorf("a refused %s changed the history (-before +after):\n%s", a, diff)
		}
		return
	}
	if got.Done != (verb == "done") || got.Asked != (verb == "asked") || got.Err != nil || string(now.Status) != status {
		t.Errorf("answer %+v and the job is %s, want %s", got, now.Status, want)
	}
	testHistoryOfAction(t, history, b.history(id), a, now.Status)
}

// testHistoryOfAction checks that the history has become longer by what was done.
// What is asked of a running job is told when its worker has done it.
func testHistoryOfAction(t *testing.T, before, after []jobs.HistoryEntry, a jobs.Action, s jobs.Status) {
	t.Helper()
	if s == jobs.Running {
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("history (-before +after):\n%s", diff)
		}
		return
	}
	if len(after) != len(before)+1 {
		t.Fatalf("history %+v after %s, was %+v", after, a, before)
	}
	last := after[len(after)-1]
	want := jobs.HistoryEntry{
		Version: len(after), At: last.At, Status: s, Event: verbs[a], Detail: "a reason", By: "alice",
	}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("last entry (-want +got):\n%s", diff)
	}
}

// Many ids in one call: an answer for each in their order, also for those that
// are unknown, given twice, or in other destinations and priorities.
func TestActOnMany(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		ids := []string{
			b.enqueue().ID, "nobody", other.enqueue().ID, "not an id",
			b.enqueue(jobs.Prioritize(jobs.PriorityLow)).ID, running(b).ID, b.enqueue(jobs.TTL(0)).ID,
		}
		ids = append(ids, ids[0])
		results, err := b.Act(context.Background(), jobs.ActionPause, ids)
		b.must(err)
		var got []string
		for i, r := range results {
			if r.ID != ids[i] {
				t.Errorf("answer %d is for %s, want %s", i, r.ID, ids[i])
			}
			got = append(got, fmt.Sprintf("%t %t %s %v", r.Done, r.Asked, r.Status, r.Err))
		}
		want := []string{
			"true false pending <nil>",
			"false false  nobody: job not found",
			"true false pending <nil>",
			"false false  not an id: job not found",
			"true false pending <nil>",
			"false true running <nil>",
			"false false expired job " + ids[6] + " cannot be paused: it is expired",
			"false false paused job " + ids[0] + " cannot be paused: it is paused",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		if results, err := b.Act(context.Background(), jobs.ActionPause, nil); err != nil || len(results) != 0 {
			t.Errorf("no ids: %v, %v", results, err)
		}
	})
}

func TestActRefusesWhatIsNoAction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, id := context.Background(), b.enqueue().ID
	want := `action: "delete" is none of cancel, pause, resume, retry, expire`
	if _, err := b.Act(ctx, "delete", []string{id}); err == nil || err.Error() != want || !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("act: %v, want %s", err, want)
	}
	some := jobs.Filter{Destination: b.dest}
	if _, err := b.ActWhere(ctx, "delete", some); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("act where: %v", err)
	}
	if _, err := b.CountWhere(ctx, "delete", some); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("count where: %v", err)
	}
	if got := b.get(id).Status; got != jobs.Pending {
		t.Errorf("the job is %s", got)
	}
}

// A nil option is refused, and nothing is done.
func TestNilOptionsAreRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, id := t.Context(), b.enqueue().ID
	for name, f := range map[string]func() error{
		"enqueue": func() error {
			_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID("refused"), nil))
			return err
		},
		"enqueue, nil function": func() error {
			_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.Option(nil)))
			return err
		},
		"enqueue many": func() error {
			results, err := b.EnqueueMany(ctx, []*jobs.Spec{jobs.New(b.dest, 1, nil)})
			return errors.Join(err, results[0].Err)
		},
		"new client": func() error {
			_, err := jobs.NewClient(b.rdb, nil)
			return err
		},
		"act": func() error {
			_, err := b.Act(ctx, jobs.ActionCancel, []string{id}, jobs.By("ana"), nil)
			return err
		},
		"act where": func() error {
			_, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Destination: b.dest}, nil)
			return err
		},
		"cancel":       func() error { return b.Cancel(ctx, id, nil) },
		"pause":        func() error { return b.Pause(ctx, id, nil) },
		"resume":       func() error { return b.Resume(ctx, id, nil) },
		"retry":        func() error { return b.Retry(ctx, id, nil) },
		"mark expired": func() error { return b.MarkExpired(ctx, id, nil) },
		"pause destination": func() error {
			_, err := b.PauseDestination(ctx, b.dest, nil)
			return err
		},
	} {
		if err := f(); !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := b.get(id).Status; got != jobs.Pending {
		t.Errorf("the job is %s", got)
	}
	if _, err := b.Get(ctx, "refused"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the job with a nil option: %v", err)
	}
}
