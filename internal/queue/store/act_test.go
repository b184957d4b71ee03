package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// wait stores a job where it waits: in the pending list, in one of asynq's sets, or
// in one of ours.
func (c *cellar) wait(id, state string, fields ...any) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, id), append([]any{store.FieldMsg, "m", store.FieldState, state}, fields...)...).Err())
	switch state {
	case store.StatePending:
		c.must(c.rdb.LPush(ctx, store.PendingKey(c.queue), id).Err())
	case store.StateActive:
		c.must(c.rdb.LPush(ctx, store.ActiveKey(c.queue), id).Err())
	case store.StateScheduled:
		c.must(c.rdb.ZAdd(ctx, store.ScheduledKey(c.queue), redis.Z{Score: 4e9, Member: id}).Err())
	case store.StateRetry:
		c.must(c.rdb.ZAdd(ctx, store.RetryKey(c.queue), redis.Z{Score: 4e9, Member: id}).Err())
	case store.StateHeld:
		c.must(c.rdb.HSet(ctx, store.TaskKey(c.queue, id), store.FieldKey, "k").Err())
		c.must(c.rdb.ZAdd(ctx, store.HeldKey(c.queue), redis.Z{Score: 17e11, Member: id}).Err())
		c.must(c.rdb.ZAdd(ctx, store.HeldJobsKey(c.queue, "k"), redis.Z{Score: 17e14, Member: id}).Err())
		c.must(c.rdb.ZAdd(ctx, store.HeldIndexKey(c.queue), redis.Z{Score: 4e12, Member: "k"}).Err())
	default:
		c.must(c.rdb.ZAdd(ctx, store.ParkedKey(c.queue, state), redis.Z{Score: 17e11, Member: id}).Err())
	}
}

// states reads the states of jobs, "" for one that does not exist.
func (c *cellar) states(ids ...string) []string {
	c.t.Helper()
	found, err := store.ReadStates(context.Background(), c.rdb, c.queue, ids)
	c.must(err)
	out := make([]string, len(ids))
	for i, st := range found {
		out[i] = st.State
	}
	return out
}

// More ids than one script takes: each is answered in its place, those that do not
// exist too.
func TestActInParts(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		var ids []string
		for i := range 450 {
			ids = append(ids, fmt.Sprint("j", i))
			switch i % 3 {
			case 0:
				c.wait(ids[i], store.StatePending)
			case 1:
				c.wait(ids[i], store.StateScheduled)
			}
		}
		verdicts, err := store.Act(context.Background(), c.rdb, c.queue, store.Order{Action: store.Pause}, ids)
		c.must(err)
		want := []store.ActResult{{Effect: store.Done, State: store.StatePending}, {Effect: store.Done, State: store.StateScheduled}, {Effect: store.NotFound}}
		for i, v := range verdicts {
			if v != want[i%3] {
				t.Errorf("verdict %d: %+v, want %+v", i, v, want[i%3])
			}
		}
		if verdicts, err = store.Act(context.Background(), c.rdb, c.queue, store.Order{Action: store.Pause}, nil); err != nil || len(verdicts) != 0 {
			t.Errorf("no ids: %v, %v", verdicts, err)
		}
	})
}

// An order for some states passes over the jobs in others.
func TestActInSomeStates(t *testing.T) {
	t.Parallel()
	all := []string{
		store.StatePending, store.StateScheduled, store.StateRetry, store.StateActive, store.StateWaiting,
		store.StatePaused, store.StateCompleted, store.StateFailed, store.StateCancelled, store.StateExpired,
		store.StateHeld,
	}
	for _, a := range []store.Action{store.Cancel, store.Pause, store.Resume, store.Retry, store.Expire} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				for _, s := range all {
					if s == store.StateCompleted {
						c.put(s, s, 0)
					} else {
						c.wait(s, s)
					}
				}
				for _, wanted := range all {
					verdicts, err := store.Act(context.Background(), c.rdb, c.queue, store.Order{Action: a, States: []string{"other", wanted}}, []string{"nobody"})
					c.must(err)
					if verdicts[0].Effect != store.NotFound {
						t.Errorf("a job that does not exist: %+v", verdicts[0])
					}
				}
				before := c.look()
				verdicts, err := store.Act(context.Background(), c.rdb, c.queue, store.Order{Action: a, States: []string{"other"}}, all)
				c.must(err)
				for i, v := range verdicts {
					if v != (store.ActResult{Effect: store.Skipped, State: all[i]}) {
						t.Errorf("%s: %+v, want it to be passed over", all[i], v)
					}
				}
				if diff := cmp.Diff(before, c.look()); diff != "" {
					t.Errorf("the queue has changed (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// failing lets a client's calls fail after the first n.
type failing struct{ left *int }

var errFailing = errors.New("no answer")

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }
func (failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			if *f.left--; *f.left < 0 {
				cmd.SetErr(errFailing)
				return errFailing
			}
		}
		return next(ctx, cmd)
	}
}

// After an error the verdicts tell what was done before it, and do not say of the
// others that they do not exist.
func TestActAfterAnError(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		var ids []string
		for i := range 450 {
			ids = append(ids, fmt.Sprint("j", i))
			c.wait(ids[i], store.StatePending)
		}
		order := store.Order{Action: store.Cancel}
		_, err := store.Act(context.Background(), c.rdb, c.queue, order, ids[:1]) // loads the script
		c.must(err)
		left := 2
		c.rdb.AddHook(failing{&left})
		verdicts, err := store.Act(context.Background(), c.rdb, c.queue, order, ids[1:])
		if !errors.Is(err, errFailing) || !strings.HasPrefix(err.Error(), "cancel jobs of "+c.queue+": ") {
			t.Errorf("error %v", err)
		}
		for i, v := range verdicts {
			want := store.ActResult{Effect: store.Done, State: store.StatePending}
			if i >= 400 {
				want = store.ActResult{Effect: store.Unreached}
			}
			if v != want {
				t.Errorf("verdict %d: %+v, want %+v", i, v, want)
			}
		}
	})
}

func TestLook(t *testing.T) {
	t.Parallel()
	inBothRedises(t, func(t *testing.T, c *cellar) {
		t.Helper()
		c.wait("a", store.StateActive, store.FieldAction, "pause", store.FieldExpiresAt, "1700000000123")
		c.wait("b", store.StateScheduled, store.FieldTombstone, "1")
		got, err := store.ReadStates(context.Background(), c.rdb, c.queue, []string{"a", "nobody", "b"})
		c.must(err)
		if got[0].State != store.StateActive || got[0].Action != "pause" || got[0].ExpiresAt.UnixMilli() != 1700000000123 || got[0].Tombstone ||
			got[1] != (store.JobState{}) || got[2] != (store.JobState{State: store.StateScheduled, Tombstone: true}) {
			t.Errorf("%+v", got)
		}
	})
}
