package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// journey is two destinations that jobs move between, and their client.
type journey struct {
	*cellar
	client   *jobs.Client
	from, to string // queues
}

func newJourney(t *testing.T, rdb redis.UniversalClient) *journey {
	t.Helper()
	a, b := redistest.Name(t, "a"), redistest.Name(t, "b")
	j := &journey{cellar: &cellar{t, rdb, store.DefaultNamespace.Queue(a, store.Default)}, from: store.DefaultNamespace.Queue(a, store.Default), to: store.DefaultNamespace.Queue(b, store.Default)}
	var err error
	j.client, err = jobs.NewClient(rdb, jobs.WithDestinations(a, b))
	j.must(err)
	j.must(rdb.SAdd(context.Background(), store.QueuesKey, j.from, j.to).Err())
	return j
}

func (j *journey) enqueue(queue, id string, opts ...jobs.Option) {
	j.t.Helper()
	destination, _, _ := store.ParseQueue(queue)
	_, err := j.client.Enqueue(context.Background(), jobs.New(destination, id, append(opts, jobs.ID(id))...))
	j.must(err)
}

// check says where the job is, as "<queue> <state>" of each record.
func (j *journey) check(id string) string {
	j.t.Helper()
	ctx := context.Background()
	var found []string
	for name, queue := range map[string]string{"from": j.from, "to": j.to} {
		if state := j.rdb.HGet(ctx, store.TaskKey(queue, id), store.FieldState).Val(); state != "" {
			found = append(found, name+" "+state)
		}
	}
	if len(found) == 2 && strings.HasPrefix(found[0], "to") {
		found[0], found[1] = found[1], found[0]
	}
	return strings.Join(found, ", ")
}

// onEachRedis runs a test on a Redis, on the embedded one and on a Cluster.
func onEachRedis(t *testing.T, test func(t *testing.T, j *journey)) {
	t.Helper()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		test(t, newJourney(t, c.rdb))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		test(t, newJourney(t, redistest.StartCluster(t).Client(t)))
	})
}

// Whatever step a move is cut off after, and whatever has become of the job by then, it
// is found in one of the two queues, once, and can still be started there once.
func TestMoveCutOff(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, j *journey) {
		t.Helper()
		ctx := context.Background()
		for _, tt := range []struct {
			name      string
			steps     int
			meanwhile func(id string)
			between   string // where the records are
			status    jobs.Status
			want      string // once it was finished
		}{
			{"created", 1, nil, "from pending, to moving", jobs.Pending, "to pending"},
			{"removed", 2, nil, "to moving", jobs.Pending, "to pending"},
			{"started", 3, nil, "to pending", jobs.Pending, "to pending"},
			{"created, and paused meanwhile", 1, func(id string) {
				j.must(j.client.Pause(ctx, id))
			}, "from paused, to moving", jobs.Paused, "from paused"},
			{"created, and taken meanwhile", 1, func(id string) {
				j.must(j.rdb.LMove(ctx, store.PendingKey(j.from), store.ActiveKey(j.from), "RIGHT", "LEFT").Err())
				j.must(j.rdb.ZAdd(ctx, store.LeaseKey(j.from), redis.Z{Score: 1e11, Member: id}).Err())
				j.must(j.rdb.HSet(ctx, store.TaskKey(j.from, id), store.FieldState, store.StateActive).Err())
			}, "from active, to moving", jobs.Running, "from active"},
			{"created, and gone meanwhile", 1, func(id string) {
				j.must(j.client.Cancel(ctx, id))
				j.must(j.rdb.Del(ctx, store.TaskKey(j.from, id)).Err())
				j.must(j.rdb.ZRem(ctx, store.ParkedKey(j.from, store.StateCancelled), id).Err())
			}, "to moving", jobs.Pending, ""},
		} {
			id := redistest.Name(t, "job")
			j.enqueue(j.from, id)
			j.must(store.MoveSteps(ctx, j.rdb, j.from, j.to, id, tt.steps))
			if tt.meanwhile != nil {
				tt.meanwhile(id)
			}
			if got := j.check(id); got != tt.between {
				t.Errorf("%s: cut off, it is %q, want %q", tt.name, got, tt.between)
			}
			if job, err := j.client.Get(ctx, id); err != nil || job.Status != tt.status {
				t.Errorf("%s: cut off, get returns %+v, %v, want it %s", tt.name, job, err, tt.status)
			}
			// Its id is taken all the time.
			destination, _, _ := store.ParseQueue(j.to)
			if job, err := j.client.Enqueue(ctx, jobs.New(destination, "other", jobs.ID(id))); err != nil || !job.Duplicate {
				t.Errorf("%s: cut off, its id is given away: %+v, %v", tt.name, job, err)
			}
			for range 2 {
				if _, err := store.FinishMoves(ctx, j.rdb, j.to); err != nil {
					t.Fatal(err)
				}
				if got := j.check(id); got != tt.want {
					t.Errorf("%s: finished, it is %q, want %q", tt.name, got, tt.want)
				}
			}
			for _, key := range []string{store.MovingKey(j.to), store.MovedKey(j.from)} {
				if left := j.rdb.ZRange(ctx, key, 0, -1).Val(); len(left) > 0 && tt.want != "from active" {
					t.Errorf("%s: %s holds %q", tt.name, key, left)
				}
			}
			j.must(j.rdb.Del(ctx, store.TaskKey(j.to, id), store.PendingKey(j.to)).Err())
			j.must(j.rdb.Del(ctx, store.TaskKey(j.from, id), store.PendingKey(j.from), store.TombstonesKey(j.from),
				store.ActiveKey(j.from), store.LeaseKey(j.from), store.ParkedKey(j.from, store.StatePaused)).Err())
		}
	})
}

// A parent may end at any step of the move of its child, and a child may be enqueued at any
// step of the move of its parent: the child always hears of it.
func TestMoveFamily(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, j *journey) {
		t.Helper()
		ctx := context.Background()
		end := func(queue, id, state string) {
			other := &cellar{t, j.rdb, queue}
			j.must(j.rdb.LRem(ctx, store.PendingKey(queue), 1, id).Err())
			key := store.CompletedKey(queue)
			if state != store.StateCompleted {
				key = store.ParkedKey(queue, state)
			}
			j.must(j.rdb.ZAdd(ctx, key, redis.Z{Score: 1e14, Member: id}).Err())
			other.endAs(id, state, "")
			j.must(store.ReleaseAllChildren(ctx, j.rdb, queue, func() {}))
		}
		for steps := range 4 {
			for state, want := range map[string]string{store.StateCompleted: "to pending", store.StateFailed: "to cancelled"} {
				parent, child := redistest.Name(t, "parent"), redistest.Name(t, "child")
				elsewhere := store.DefaultNamespace.Queue(redistest.Name(t, "else"), store.Default)
				destination, _, _ := store.ParseQueue(elsewhere)
				j.client, _ = jobs.NewClient(j.rdb, jobs.WithDestinations(destination, strings.TrimPrefix(j.from, "tidegate:")))
				j.enqueue(elsewhere, parent)
				j.enqueue(j.from, child, jobs.After(parent))
				if steps > 0 {
					j.must(store.MoveSteps(ctx, j.rdb, j.from, j.to, child, steps))
				}
				end(elsewhere, parent, state)
				_, err := store.FinishMoves(ctx, j.rdb, j.to)
				j.must(err)
				if state := j.rdb.HGet(ctx, store.TaskKey(j.from, child), store.FieldState).Val(); state != "" {
					want = strings.Replace(want, "to", "from", 1)
				} else if steps == 0 {
					t.Errorf("the child left without a move")
				}
				if got := j.check(child); got != want {
					t.Errorf("after %d steps the parent %s: child %q, want %q", steps, state, got, want)
				}
			}

			parent, before, after := redistest.Name(t, "parent"), redistest.Name(t, "before"), redistest.Name(t, "after")
			j.enqueue(j.from, parent)
			j.enqueue(j.from, before, jobs.After(parent))
			if steps > 0 {
				j.must(store.MoveSteps(ctx, j.rdb, j.from, j.to, parent, steps))
			}
			j.enqueue(j.from, after, jobs.After(parent))
			_, err := store.FinishMoves(ctx, j.rdb, j.to)
			j.must(err)
			children, err := j.client.Children(ctx, parent)
			if err != nil || len(children) != 2 {
				t.Errorf("after %d steps: children %q, %v", steps, children, err)
			}
			queue := j.to
			if strings.HasPrefix(j.check(parent), "from") {
				queue = j.from
			}
			end(queue, parent, store.StateCompleted)
			if diff := cmp.Diff([]string{store.StatePending, store.StatePending}, j.states(before, after)); diff != "" {
				t.Errorf("after %d steps of the parent's move, children (-want +got):\n%s", steps, diff)
			}
		}
	})
}

// A child that looks its parent up just before the parent moves away finds it all the same.
func TestRegisterFollowsMove(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, j *journey) {
		t.Helper()
		ctx := context.Background()
		for steps := 1; steps <= 3; steps++ {
			parent := redistest.Name(t, "parent")
			j.enqueue(j.from, parent)
			child := j.child(fmt.Sprint("child-", parent), parent)
			j.must(store.MoveSteps(ctx, j.rdb, j.from, j.to, parent, steps))
			ended, err := store.Register(ctx, j.rdb, store.Ref{Queue: j.from, ID: parent}, []store.Ref{child})
			if err != nil || ended {
				t.Errorf("after %d steps: parent ended %t, %v", steps, ended, err)
			}
		}
	})
}

// A mover whose job another call has deleted again in the other queue leaves no children
// there: the doctor would take them for those of a parent that is gone, and cancel them.
func TestMoveLeavesNoChildren(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, j *journey) {
		t.Helper()
		ctx := context.Background()
		parent, child := redistest.Name(t, "parent"), redistest.Name(t, "child")
		j.enqueue(j.from, parent)
		j.enqueue(j.from, child, jobs.After(parent))
		j.must(store.MoveSteps(ctx, j.rdb, j.from, j.to, parent, 1))
		j.must(store.CopyChildren(ctx, j.rdb, j.from, j.to, parent))
		if n := j.rdb.SCard(ctx, store.ChildrenKey(j.to, parent)).Val(); n != 1 {
			t.Errorf("%d children copied, want 1", n)
		}
		j.must(j.client.Pause(ctx, parent))
		_, err := store.FinishMoves(ctx, j.rdb, j.to)
		j.must(err)
		j.must(store.CopyChildren(ctx, j.rdb, j.from, j.to, parent))
		if got := j.check(parent); got != "from paused" {
			t.Errorf("the parent is %q", got)
		}
		if left := j.rdb.SMembers(ctx, store.ChildrenKey(j.to, parent)).Val(); len(left) > 0 {
			t.Errorf("children of no job: %q", left)
		}
	})
}
