package doctor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/jobs"
)

// Each kind of damage, done by hand, is found and repaired.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage func(*patient)
		want   []string
		after  func(*patient)
	}{
		"in flight without a lease": {
			damage: func(p *patient) {
				p.enqueue("old")
				p.enqueue("older-is-left") // pending all the time
				p.take("old")
				p.enqueue("new")
				p.take("new")
			},
			want: []string{"active_without_lease new old"},
			after: func(p *patient) {
				p.wantPending("older-is-left", "new", "old")
				p.wantState("old", "pending")
				p.wantNote("old", "pending")
			},
		},
		"in flight without a lease, to be cancelled": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.take("a")
				p.must(p.client.Cancel(p.ctx, "a", jobs.By("me"), jobs.Because("enough")))
			},
			want: []string{"active_without_lease a"},
			after: func(p *patient) {
				p.wantState("a", "cancelled")
				if got := p.field("a", "last_error"); got != "enough" {
					p.t.Errorf("last error %q", got)
				}
			},
		},
		"in flight without a lease, to be paused": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.take("a")
				p.must(p.client.Pause(p.ctx, "a"))
			},
			want: []string{"active_without_lease a"},
			after: func(p *patient) {
				p.wantState("a", "paused")
				p.must(p.client.Resume(p.ctx, "a"))
				p.wantPending("a")
			},
		},
		"in flight without a lease, its time over": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.TTL(time.Hour))
				p.take("a")
				p.set("a", "expires_at", time.Now().Add(-time.Second).UnixMilli())
			},
			want:  []string{"active_without_lease a"},
			after: func(p *patient) { p.wantState("a", "expired") },
		},
		"accepted without a deadline": {
			damage: func(p *patient) {
				p.in(store.StateAccepted, "a")
				p.zrem(store.ParkedKey(p.queue, store.StateAccepted), "a")
			},
			want: []string{"lost a"},
			after: func(p *patient) {
				p.wantState("a", "accepted")
				p.wantScore(store.ParkedKey(p.queue, store.StateAccepted), "a", p.field("a", "available_at"))
			},
		},
		"in the list of those in flight and not in flight": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.must(p.rdb.LPush(p.ctx, store.ActiveKey(p.queue), "a", "gone").Err())
				p.lease("a", store.Lease)
				p.in(store.StateActive, "b")
			},
			want: []string{"active_stale a gone"},
			after: func(p *patient) {
				p.wantPending("a")
				if ids := p.rdb.LRange(p.ctx, store.ActiveKey(p.queue), 0, -1).Val(); len(ids) != 1 || ids[0] != "b" {
					p.t.Errorf("in flight %v, want b", ids)
				}
				if p.rdb.ZCard(p.ctx, store.LeaseKey(p.queue)).Val() != 1 {
					p.t.Error("the lease is still there")
				}
			},
		},
		"instants from before Redis's clock went back": {
			damage: func(p *patient) {
				p.in(store.StateActive, "a")
				p.lease("a", time.Hour)
				p.in(store.StateRetry, "b")
				p.set("b", store.FieldWait, 10_000)
				p.in(store.StateScheduled, "at") // a given instant
			},
			want: []string{"lease_ahead a", "wait_ahead b"},
			after: func(p *patient) {
				for key, most := range map[string]time.Time{
					store.LeaseKey(p.queue): time.Unix(time.Now().Add(store.Lease+2*time.Second).Unix(), 0),
					store.RetryKey(p.queue): time.Now().Add(12 * time.Second),
				} {
					if last := p.rdb.ZRevRangeWithScores(p.ctx, key, 0, 0).Val(); len(last) != 1 || int64(last[0].Score) > most.Unix() {
						p.t.Errorf("%s has %v, want %d at most", key, last, most.Unix())
					}
				}
			},
		},
		"a lease of nothing": {
			damage: func(p *patient) { p.enqueue("a"); p.lease("a", store.Lease); p.lease("gone", -time.Hour) },
			want:   []string{"lease_stale a gone"},
			after:  func(p *patient) { p.wantPending("a") },
		},
		"in flight, with a lease, missing in the list": {
			damage: func(p *patient) {
				p.in(store.StateActive, "a")
				p.must(p.rdb.Del(p.ctx, store.ActiveKey(p.queue)).Err())
			},
			want: []string{"lost a"},
			after: func(p *patient) {
				p.wantState("a", "active") // its worker, or the end of the lease, goes on
				if ids := p.rdb.LRange(p.ctx, store.ActiveKey(p.queue), 0, -1).Val(); len(ids) != 1 || ids[0] != "a" {
					p.t.Errorf("in flight %v, want a", ids)
				}
			},
		},
		"in flight and nowhere": {
			damage: func(p *patient) {
				p.in(store.StateActive, "a")
				p.must(p.rdb.Del(p.ctx, store.ActiveKey(p.queue), store.LeaseKey(p.queue)).Err())
			},
			want:  []string{"lost a"},
			after: func(p *patient) { p.wantPending("a"); p.wantState("a", "pending"); p.wantNote("a", "pending") },
		},
		"archived with asynq's tools": {
			damage: func(p *patient) {
				for _, id := range []string{"a", "b"} {
					p.enqueue(id, jobs.Batch("x"))
					p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, id).Err())
					p.set(id, "state", "archived")
				}
				p.set("b", "last_error", "boom")
				p.zadd("asynq:{"+p.queue+"}:archived", float64(time.Now().Unix()), "a")
				p.zadd("asynq:{"+p.queue+"}:archived", float64(time.Now().Unix()), "gone")
				// b was dropped by asynq, which keeps 10,000.
			},
			want: []string{"archived a b", "entry_without_job gone"},
			after: func(p *patient) {
				for id, want := range map[string]string{"a": "archived with asynq's tools", "b": "archived with asynq's tools; before that: boom"} {
					j, err := p.client.Get(p.ctx, id)
					p.must(err)
					if j.Status != jobs.Failed || j.LastError != want || j.EndedAt == nil {
						p.t.Errorf("%s is %s with %q, ended %v", id, j.Status, j.LastError, j.EndedAt)
					}
					p.must(p.client.Retry(p.ctx, id))
				}
			},
		},
		"pending and nowhere": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.enqueue("b")
				p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, "a").Err())
			},
			want:  []string{"lost a"},
			after: func(p *patient) { p.wantPending("b", "a"); p.wantNote("a", "pending") },
		},
		"an unrecorded tombstone": {
			damage: func(p *patient) {
				p.in(store.StateCompleted, "a")
				p.must(p.rdb.LPush(p.ctx, store.PendingKey(p.queue), "a").Err())
				p.must(p.rdb.Set(p.ctx, store.TombstonesKey(p.queue), 1, 0).Err())
			},
			want: []string{"tombstone_missing a"},
		},
		"a tombstone recorded where there is none": {
			damage: func(p *patient) {
				p.in(store.StatePaused, "a")
				p.set("a", "tombstone", "1")
			},
			want: []string{"tombstone_stale a"},
			after: func(p *patient) {
				p.must(p.client.Resume(p.ctx, "a"))
				p.wantPending("a")
			},
		},
		"pending and a tombstone": {
			damage: func(p *patient) { p.enqueue("a"); p.set("a", "tombstone", "1") },
			want:   []string{"tombstone_stale a"},
			after:  func(p *patient) { p.wantPending("a") },
		},
		"too many tombstones counted": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.enqueue("b")
				p.must(p.client.Pause(p.ctx, "b"))
				p.must(p.rdb.Set(p.ctx, store.TombstonesKey(p.queue), 7, 0).Err())
			},
			want: []string{"tombstone_count"},
			after: func(p *patient) {
				if got := p.rdb.Get(p.ctx, store.TombstonesKey(p.queue)).Val(); got != "1" {
					p.t.Errorf("%s tombstones, want 1", got)
				}
			},
		},
		"tombstones of jobs that are gone not counted": {
			damage: func(p *patient) { p.must(p.rdb.LPush(p.ctx, store.PendingKey(p.queue), "gone", "gone2").Err()) },
			want:   []string{"tombstone_count"},
		},
		"tombstones counted and no list": {
			damage: func(p *patient) { p.must(p.rdb.Set(p.ctx, store.TombstonesKey(p.queue), 3, 0).Err()) },
			want:   []string{"tombstone_count"},
			after: func(p *patient) {
				if p.rdb.Exists(p.ctx, store.TombstonesKey(p.queue)).Val() != 0 {
					p.t.Error("the count of no tombstones is still there")
				}
			},
		},
		"expires and would not": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.TTL(time.Hour))
				p.zrem(store.ExpiryKey(p.queue), "a")
				p.in(store.StatePaused, "b", jobs.TTL(time.Hour))
				p.zadd(store.ExpiryKey(p.queue), float64(time.Now().Add(2*time.Hour).UnixMilli()), "b")
			},
			want: []string{"expiry_missing a b"},
			after: func(p *patient) {
				for _, id := range []string{"a", "b"} {
					at := p.rdb.ZScore(p.ctx, store.ExpiryKey(p.queue), id).Val()
					j, err := p.client.Get(p.ctx, id)
					p.must(err)
					if int64(at) != j.ExpiresAt.UnixMilli() {
						p.t.Errorf("%s expires at %v by the index, at %v by its record", id, int64(at), j.ExpiresAt.UnixMilli())
					}
				}
			},
		},
		"a cancel that no worker would find": {
			damage: func(p *patient) {
				p.in(store.StateActive, "a")
				p.must(p.client.Cancel(p.ctx, "a"))
				p.must(p.rdb.Del(p.ctx, store.ActionsKey(p.queue)).Err())
			},
			want: []string{"action_missing a"},
			after: func(p *patient) {
				if !p.rdb.SIsMember(p.ctx, store.ActionsKey(p.queue), "a").Val() {
					p.t.Error("it is not marked")
				}
			},
		},
		"missing in its batch": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.Batch("x"))
				p.must(p.rdb.Del(p.ctx, store.BatchKey(p.queue, "x"), store.BatchesKey(p.queue)).Err())
			},
			want: []string{"batch_missing a"},
			after: func(p *patient) {
				b, err := p.client.Batch(p.ctx, "x")
				p.must(err)
				if b.Total != 1 {
					p.t.Errorf("batch of %d", b.Total)
				}
				j, err := p.client.Get(p.ctx, "a")
				p.must(err)
				if at := p.rdb.ZScore(p.ctx, store.BatchKey(p.queue, "x"), "a").Val(); int64(at) != j.CreatedAt.UnixMilli() {
					p.t.Errorf("in the batch since %v, created at %v", int64(at), j.CreatedAt.UnixMilli())
				}
			},
		},
		"a batch that is not listed": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.Batch("x"))
				p.zrem(store.BatchesKey(p.queue), "x")
			},
			want: []string{"batch_unlisted x"},
		},
		"a batch without jobs": {
			damage: func(p *patient) { p.zadd(store.BatchesKey(p.queue), 1, "x") },
			want:   []string{"batch_empty x"},
		},
		"a batch with jobs that are gone or not of it": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.Batch("x"))
				p.enqueue("b")
				p.zadd(store.BatchKey(p.queue, "x"), 1, "gone")
				p.zadd(store.BatchKey(p.queue, "x"), 1, "b")
				p.zadd(store.BatchKey(p.queue, "y"), 1, "gone")
				p.zadd(store.BatchesKey(p.queue), 1, "y")
			},
			want: []string{"entry_stale b", "entry_without_job gone gone"},
			after: func(p *patient) {
				if got := p.rdb.ZRange(p.ctx, store.BatchesKey(p.queue), 0, -1).Val(); len(got) != 1 || got[0] != "x" {
					p.t.Errorf("batches %v, want x", got)
				}
			},
		},
		"held, and not among those of its key": {
			damage: func(p *patient) {
				p.in(store.StateHeld, "a")
				p.in(store.StateHeld, "b")
				p.zrem(store.HeldJobsKey(p.queue, "k"), "a")
			},
			want: []string{"lost a"},
			after: func(p *patient) {
				all := p.rdb.ZScore(p.ctx, store.HeldKey(p.queue), "a").Val()
				if at := p.rdb.ZScore(p.ctx, store.HeldJobsKey(p.queue, "k"), "a").Val(); at != all*1000 {
					p.t.Errorf("its place is %f, and it is held since %f", at, all)
				}
				p.wantNote("a", "pending")
			},
		},
		"held, and its key is gone with all that was known of it": {
			damage: func(p *patient) {
				p.in(store.StateHeld, "a")
				p.must(p.rdb.Del(p.ctx, store.HeldKey(p.queue), store.HeldJobsKey(p.queue, "k"), store.HeldIndexKey(p.queue)).Err())
			},
			want: []string{"lost a"},
			after: func(p *patient) {
				p.wantState("a", "held")
				if n := p.rdb.Exists(p.ctx, store.HeldKey(p.queue), store.HeldJobsKey(p.queue, "k"), store.HeldIndexKey(p.queue)).Val(); n != 3 {
					p.t.Errorf("%d of its three places are back", n)
				}
			},
		},
		"held without a key": {
			damage: func(p *patient) {
				p.in(store.StateHeld, "a")
				p.must(p.rdb.HDel(p.ctx, store.TaskKey(p.queue, "a"), "key").Err())
			},
			want: []string{"entry_stale a", "lost a"},
			after: func(p *patient) {
				p.wantPending("a")
				if n := p.rdb.Exists(p.ctx, store.HeldKey(p.queue), store.HeldJobsKey(p.queue, "k"), store.HeldIndexKey(p.queue)).Val(); n != 0 {
					p.t.Errorf("%d of its places are left", n)
				}
			},
		},
		"held by a key that is not listed": {
			damage: func(p *patient) {
				p.in(store.StateHeld, "a")
				p.zrem(store.HeldIndexKey(p.queue), "k")
			},
			want: []string{"key_unlisted k"},
			after: func(p *patient) {
				if at := p.rdb.ZScore(p.ctx, store.HeldIndexKey(p.queue), "k").Val(); at == 0 || at > float64(time.Now().UnixMilli()) {
					p.t.Errorf("it may be asked for at %f, want now", at)
				}
			},
		},
		"a key without held jobs": {
			damage: func(p *patient) { p.zadd(store.HeldIndexKey(p.queue), 1, "k") },
			want:   []string{"key_empty k"},
		},
		"held jobs of a key that are gone, or not of it": {
			damage: func(p *patient) {
				p.in(store.StateHeld, "a")
				p.enqueue("b")
				p.zadd(store.HeldJobsKey(p.queue, "k"), 1, "gone")
				p.zadd(store.HeldJobsKey(p.queue, "k"), 1, "b")
				p.zadd(store.HeldJobsKey(p.queue, "other"), 1, "a")
				p.zadd(store.HeldIndexKey(p.queue), 1, "other")
			},
			want: []string{"entry_stale a b", "entry_without_job gone"},
			after: func(p *patient) {
				if got := p.rdb.ZRange(p.ctx, store.HeldIndexKey(p.queue), 0, -1).Val(); len(got) != 1 || got[0] != "k" {
					p.t.Errorf("held keys %v, want k", got)
				}
			},
		},
		"in flight without a lease, while others of its key are held": {
			damage: func(p *patient) {
				p.enqueue("a", jobs.Key("k"))
				p.take("a")
				p.in(store.StateHeld, "late")
				p.zadd(store.HeldJobsKey(p.queue, "k"), 5e15, "late")
			},
			want: []string{"active_without_lease a"},
			after: func(p *patient) {
				if got := p.rdb.ZRange(p.ctx, store.HeldJobsKey(p.queue, "k"), 0, -1).Val(); len(got) != 2 || got[0] != "a" {
					p.t.Errorf("held %v, want a before the other", got)
				}
			},
		},
		"children that would not be released": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.enqueue("child", jobs.After("a"))
				p.must(p.client.Cancel(p.ctx, "a"))
				p.must(p.rdb.Del(p.ctx, store.OutboxKey(p.queue)).Err())
				p.must(p.rdb.SAdd(p.ctx, store.ChildrenKey(p.queue, "a"), p.queue+" child").Err())
				p.enqueue("b")
				p.must(p.rdb.SAdd(p.ctx, store.ChildrenKey(p.queue, "b"), p.queue+" x").Err())
			},
			want: []string{"children_waiting a b"},
			after: func(p *patient) {
				if p.field("b", "children") != "1" {
					p.t.Error("b has no children")
				}
				if _, err := p.rdb.ZScore(p.ctx, store.OutboxKey(p.queue), "a").Result(); err != nil {
					p.t.Errorf("a is not in the outbox: %v", err)
				}
			},
		},
		"children of a job that is gone": {
			damage: func(p *patient) { p.must(p.rdb.SAdd(p.ctx, store.ChildrenKey(p.queue, "gone"), p.queue+" x").Err()) },
			want:   []string{"children_orphaned gone"},
		},
		"waits counted wrong": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.enqueue("b")
				p.enqueue("child", jobs.After("a", "b"))
				p.set("child", "waits", 5)
				p.enqueue("free", jobs.After("a"))
				p.set("free", "after:a", "0")
				p.enqueue("stuck", jobs.After("a"))
				p.set("stuck", "after:a", "0", "waits", "0")
				p.must(p.rdb.SRem(p.ctx, store.ChildrenKey(p.queue, "a"), p.queue+" free", p.queue+" stuck").Err())
			},
			want: []string{"waits_wrong child free stuck"},
			after: func(p *patient) {
				p.wantState("child", "waiting")
				if got := p.field("child", "waits"); got != "2" {
					p.t.Errorf("it waits for %s, want 2", got)
				}
				p.wantState("free", "pending")
				p.wantState("stuck", "pending")
				p.wantNote("free", "pending")
			},
		},
		"jobs that wait in the lines of their keys": {
			damage: func(p *patient) {
				p.in(store.StatePaused, "first")
				p.set("first", "line", "block well")
				for id, key := range map[string]string{"behind": "well", "freed": "gone", "unlisted": "well"} {
					p.in(store.StateWaiting, id)
					p.set(id, "line", "block "+key, "waits", 0, "after:someone", "0")
				}
				line := "tidegate:{" + p.queue + "}:line:"
				p.zadd(line+"well", 1, "first")
				p.zadd(line+"well", 2, "behind")
				p.zadd(line+"gone", 1, "deleted")
				p.zadd(line+"gone", 2, "freed")
			},
			want: []string{"entry_without_job deleted", "waits_wrong unlisted"},
			after: func(p *patient) {
				p.wantState("behind", "waiting")
				p.wantState("freed", "pending")
				p.wantState("unlisted", "pending")
			},
		},
		"jobs that wait for an instant in some of their sets": {
			damage: func(p *patient) {
				for _, id := range []string{"a", "b", "c", "good"} {
					p.in(store.StateScheduled, id)
					p.set(id, "reason", "breaker_open shop")
					p.zadd(store.DeferredKey(p.queue, "shop"), p.rdb.ZScore(p.ctx, store.DueKey(p.queue), id).Val(), id)
				}
				p.zrem(store.ScheduledKey(p.queue), "a")
				p.zrem(store.DueKey(p.queue), "b")
				p.zrem(store.DeferredKey(p.queue, "shop"), "c")
				p.in(store.StateRetry, "r")
				p.zrem(store.DueKey(p.queue), "r")
			},
			want: []string{"lost a b c r"},
			after: func(p *patient) {
				for _, id := range []string{"a", "b", "c", "r", "good"} {
					at := p.field(id, "available_at")
					p.wantScore(store.DueKey(p.queue), id, at)
					if id != "r" {
						p.wantScore(store.DeferredKey(p.queue, "shop"), id, at)
						p.wantState(id, "scheduled")
					}
				}
				p.wantState("r", "retry")
			},
		},
		"entries of jobs that do not wait for an instant or for this breaker": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.in(store.StateScheduled, "b")
				for _, set := range []string{store.DueKey(p.queue), store.DeferredKey(p.queue, "shop"), store.DeferredKey(p.queue, "shop/k")} {
					p.zadd(set, 4e12, "a")
					p.zadd(set, 4e12, "gone")
				}
				p.set("b", "reason", "breaker_open shop/k")
				p.zadd(store.DeferredKey(p.queue, "shop"), 4e12, "b")
				p.zadd(store.DeferredKey(p.queue, "shop/k"), 4e12, "b")
			},
			want: []string{"entry_stale a", "entry_stale a a b", "entry_without_job gone", "entry_without_job gone gone"},
			after: func(p *patient) {
				if n := p.rdb.Exists(p.ctx, store.DeferredKey(p.queue, "shop")).Val(); n != 0 {
					p.t.Error("there are still jobs that breaker shop deferred")
				}
				p.wantScore(store.DeferredKey(p.queue, "shop/k"), "b", "4000000000000")
			},
		},
		"a queue that is not listed": {
			damage: func(p *patient) {
				p.enqueue("a")
				p.must(p.rdb.Del(p.ctx, store.PendingKey(p.queue)).Err())
				p.must(p.rdb.SRem(p.ctx, store.QueuesKey, p.queue).Err())
				p.must(p.rdb.LPush(p.ctx, store.ActiveKey(p.queue), "gone").Err())
			},
			want: []string{"active_stale gone", "lost a", "queue_unlisted tidegate:shop"},
			after: func(p *patient) {
				p.wantPending("a")
				if !p.rdb.SIsMember(p.ctx, store.QueuesKey, p.queue).Val() {
					p.t.Error("the queue is not listed")
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.must(p.rdb.SAdd(p.ctx, store.QueuesKey, p.queue).Err())
			tc.damage(p)
			p.heal(tc.want...)
			if tc.after != nil {
				tc.after(p)
			}
		})
	}
}

// indexed are the states whose jobs are in a sorted set.
var indexed = []string{
	store.StateScheduled, store.StateRetry, store.StateCompleted, store.StateFailed, store.StateCancelled,
	store.StateExpired, store.StatePaused, store.StateWaiting, store.StateHeld, store.StateAccepted,
}

func TestLostEntriesComeBack(t *testing.T) {
	t.Parallel()
	for _, state := range indexed {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t)
			p.in(state, "a")
			p.in(state, "b")
			was := p.rdb.ZScore(p.ctx, p.index(state), "a").Val()
			p.zrem(p.index(state), "a")
			p.heal("lost a")
			p.wantState("a", state)
			now, err := p.rdb.ZScore(p.ctx, p.index(state), "a").Result()
			p.must(err)
			// In seconds or milliseconds: the time it was deferred until or ended,
			// and of a completed job how long it is kept.
			tolerated := 5000.0
			if state == store.StateCompleted {
				was, tolerated = float64(time.Now().Add(24*time.Hour).Unix()), 5
			} else if state == store.StateScheduled || state == store.StateRetry {
				tolerated = 2
			}
			if now < was-tolerated || now > was+tolerated {
				t.Errorf("score %f, want about %f", now, was)
			}
		})
	}
}

func TestEntriesInTheWrongPlace(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.in(store.StatePaused, "here")
	p.in(store.StateScheduled, "there")
	for _, state := range indexed {
		other := "here"
		if state == store.StatePaused {
			other = "there"
		}
		p.zadd(p.index(state), score(state), "gone")
		p.zadd(p.index(state), score(state), other)
	}
	p.zadd(store.ExpiryKey(p.queue), 1, "gone")
	p.zadd(store.ExpiryKey(p.queue), 1, "here") // any job may be there
	p.must(p.rdb.SAdd(p.ctx, store.ActionsKey(p.queue), "gone", "here").Err())
	p.zadd(store.OutboxKey(p.queue), 1, "gone")
	p.zadd(store.OutboxKey(p.queue), 1, "here")
	found := p.run(doctor.Options{})
	got := map[string]int{}
	for _, f := range found.Findings {
		got[f.Kind] += f.Count
		if !f.Repaired || f.Detail == "" || strings.Contains(f.Detail, "%") {
			t.Errorf("finding %+v", f)
		}
	}
	if got["entry_without_job"] != 13 || got["entry_stale"] != 12 || len(got) != 2 {
		t.Errorf("found %v, want 13 without a job and 12 of a job that is somewhere else", got)
	}
	if again := p.run(doctor.Options{}); len(again.Findings) > 0 {
		t.Errorf("after the repair there is still: %+v", again.Findings)
	}
	p.wantState("here", "paused")
	p.must(p.client.Resume(p.ctx, "here"))
}

// What is as it should be is left alone, and what is not ours.
func TestHealthyJobsAreLeftAlone(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	for _, state := range append([]string{store.StatePending, store.StateActive}, indexed...) {
		p.in(state, "one-"+state, jobs.TTL(time.Hour), jobs.Batch("b"))
		p.in(state, "two-"+state)
	}
	p.enqueue("cancelled-in-the-queue")
	p.must(p.client.Cancel(p.ctx, "cancelled-in-the-queue"))
	p.enqueue("purged")
	p.must(p.client.Cancel(p.ctx, "purged"))
	p.must(p.rdb.Del(p.ctx, store.TaskKey(p.queue, "purged")).Err())
	p.zrem(store.ParkedKey(p.queue, "cancelled"), "purged")
	p.enqueue("purged") // again, beside its tombstone
	p.enqueue("parent")
	p.enqueue("child", jobs.After("parent"))
	// Another program's queues, as wrong as can be.
	for _, queue := range []string{"default", "tidegate-alerts", "tidegate:shop:urgent", "x:tidegate:shop"} {
		p.must(p.rdb.SAdd(p.ctx, store.QueuesKey, queue).Err())
		p.must(p.rdb.LPush(p.ctx, store.ActiveKey(queue), "x").Err())
		p.must(p.rdb.HSet(p.ctx, store.TaskKey(queue, "y"), "state", "retry", "msg", "?").Err())
		p.zadd(store.FailedKey(queue), 1, "z")
	}
	before := p.everything()
	r := p.run(doctor.Options{})
	if len(r.Findings) > 0 {
		t.Errorf("found %+v", r.Findings)
	}
	if r.Checked != 2*(len(indexed)+2)+4 {
		t.Errorf("%d jobs checked, there are %d", r.Checked, 2*(len(indexed)+2)+4)
	}
	for key, value := range p.everything() {
		if before[key] != value {
			t.Errorf("%s has changed", key)
		}
	}
}

// What a person must look at is reported and left alone.
func TestReported(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.enqueue("a")
	p.set("half", "state", "completed")
	p.enqueue("odd")
	p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, "odd").Err())
	p.set("odd", "state", "upside-down")
	p.alive(p.dest, 31*time.Second)
	for _, id := range []string{"theirs", "dropped"} { // by asynq's archive
		m := store.Message{Type: "email:send", ID: id, Queue: p.queue}
		p.set(id, "state", "archived", "msg", m.AppendTo(nil))
	}
	p.zadd("asynq:{"+p.queue+"}:archived", float64(time.Now().Unix()), "theirs")
	if _, err := p.client.Enqueue(p.ctx, jobs.New("other", 1, jobs.Delay(time.Hour))); err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.PauseDestination(p.ctx, p.dest); err != nil {
		t.Fatal(err)
	}
	before := p.everything()
	r := p.run(doctor.Options{})
	var got []string
	for _, f := range r.Findings {
		if f.Repaired || f.Count == 0 {
			t.Errorf("finding %+v", f)
		}
		got = append(got, f.Kind+" "+f.Queue)
	}
	want := "no_worker tidegate:other, foreign tidegate:shop, no_worker tidegate:shop, paused tidegate:shop, unreadable tidegate:shop"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("found %s", text)
	}
	after := p.everything()
	for key, value := range after {
		if before[key] != value {
			t.Errorf("%s has changed", key)
		}
	}
	p.alive(p.dest, 0)
	p.alive("other", 0)
	if _, err := p.client.ResumeDestination(p.ctx, p.dest); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(short(p.run(doctor.Options{})), ", "); text != "foreign theirs, unreadable half odd" {
		t.Errorf("with workers and without the pause: %s", text)
	}
}
