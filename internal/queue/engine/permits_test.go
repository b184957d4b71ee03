package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// permitsOf are the permits of the jobs that were fetched, in their order.
func permitsOf(c *Engine) string {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	texts := make([]string, len(c.buffer))
	for i, d := range c.buffer {
		texts[i] = fmt.Sprint(d.ID, "=", d.Permit)
	}
	return strings.Join(texts, " ")
}

// One fetch takes a job for each permit of a grant, and the gate gets back what is left.
func TestSeveralPermits(t *testing.T) {
	t.Parallel()
	job := func(id string) store.Message {
		return store.Message{Type: store.TaskType, ID: id, Retry: store.MaxRetry}
	}
	for _, tc := range []struct {
		name          string
		jobs, slots   int
		max           int
		admit         func(key string, permit any) Admission
		fetched, told string
		pending       string
	}{
		{name: "as many jobs", jobs: 3, slots: 9, fetched: "j0000=p j0001=q j0002=r"},
		{name: "more jobs", jobs: 4, slots: 9, fetched: "j0000=p j0001=q j0002=r", pending: "j0003"},
		{name: "fewer jobs", jobs: 2, slots: 9, fetched: "j0000=p j0001=q", told: "unused(r)"},
		{name: "fewer slots", jobs: 4, slots: 1, fetched: "j0000=p", told: "unused(q) unused(r)", pending: "j0001 j0002 j0003"},
		{name: "one may be fetched", jobs: 4, slots: 9, max: 1, fetched: "j0000=p", told: "unused(q) unused(r)", pending: "j0001 j0002 j0003"},
		{
			name: "a key is refused", jobs: 3, slots: 9, fetched: "j0000=p j0002=q", told: "unused(r)",
			admit: func(key string, permit any) Admission {
				if key == "k1" {
					return Admission{Verdict: KeyRefused, Until: time.Now().Add(time.Hour)}
				}
				return Admission{Permit: permit}
			},
		},
		{
			name: "a job costs more", jobs: 3, slots: 9, fetched: "j0000=p", told: "unused(q) unused(r)", pending: "j0001 j0002",
			admit: func(key string, permit any) Admission {
				if key == "k1" {
					return Admission{Verdict: Refused}
				}
				return Admission{Permit: permit}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			g := &fakeGate{admit: tc.admit}
			c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: tc.slots, Gate: g, Worker: "host:1"})
			t.Cleanup(func() { s.must(c.CloseGate(context.Background())) })
			for i, id := range numbered(tc.jobs) {
				s.pending(id)
				m := job(id)
				fields := []any{store.FieldMsg, m.AppendTo(nil)}
				if tc.admit != nil {
					fields = append(fields, store.FieldKey, fmt.Sprint("k", i))
				}
				s.must(s.rdb.HSet(t.Context(), store.TaskKey(s.queue, id), fields...).Err())
			}
			grant := newGranted(Grant{Max: cmp.Or(tc.max, 3), Permit: "p", More: []any{"q", "r"}})
			if _, _, err := c.take(grant); err != nil && tc.name != "a job costs more" {
				t.Fatal(err)
			}
			if rest, left := grant.unused(); left {
				c.gate.Unused(t.Context(), rest)
			}
			if got := permitsOf(c); got != tc.fetched {
				t.Errorf("fetched %q, want %q", got, tc.fetched)
			}
			if got := g.told(); got != tc.told {
				t.Errorf("the gate was told %q, want %q", got, tc.told)
			}
			if got := s.look()["pending"]; got != tc.pending {
				t.Errorf("pending: %q, want %q", got, tc.pending)
			}
		})
	}
}

// After a fetch that left jobs in the queue, Redis is not asked whether there are any; it is if the
// fetch has emptied the queue, or the last grant was not used up.
func TestBacklogIsKnownFromTheFetch(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := New(s.rdb, Options{Queues: []string{s.queue}, Concurrency: 9, Gate: &fakeGate{}})
	t.Cleanup(func() { s.must(c.CloseGate(context.Background())) })
	backlog := func() int {
		t.Helper()
		n, err := c.backlog(t.Context())
		s.must(err)
		return n
	}
	take := func() {
		t.Helper()
		_, _, err := c.take(newGranted(Grant{Max: 2, Permit: "p", More: []any{"q"}}))
		s.must(err)
	}
	s.pending(numbered(5)...)
	if n := backlog(); n != 5 {
		t.Errorf("%d jobs, want 5", n)
	}
	take()
	s.must(s.rdb.Del(t.Context(), store.PendingKey(s.queue)).Err()) // without notice
	if got := []int{backlog(), backlog()}; !slices.Equal(got, []int{7, 0}) {
		t.Errorf("after a fetch that left jobs: %v, want one for each free slot, and then what Redis says", got)
	}
	s.pending("last")
	take()
	if n := backlog(); n != 0 {
		t.Errorf("%d jobs after the last one, want 0", n)
	}
	if got := permitsOf(c); got != "j0000=p j0001=q last=p" {
		t.Errorf("fetched %s", got)
	}
}
