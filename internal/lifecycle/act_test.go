package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/lifecycle"
	"github.com/tidegate/tidegate/internal/record"
)

// wait stores a job where it waits: in the pending list, in one of asynq's sets, or
// in one of ours.
func (c *cellar) wait(id, state string, fields ...any) {
	c.t.Helper()
	ctx := context.Background()
	c.must(c.rdb.HSet(ctx, record.Task(c.queue, id), append([]any{record.FieldMsg, "m", record.FieldState, state}, fields...)...).Err())
	switch state {
	case record.StatePending:
		c.must(c.rdb.LPush(ctx, record.Pending(c.queue), id).Err())
	case record.StateActive:
		c.must(c.rdb.LPush(ctx, record.Active(c.queue), id).Err())
	case record.StateScheduled:
		c.must(c.rdb.ZAdd(ctx, record.Scheduled(c.queue), redis.Z{Score: 4e9, Member: id}).Err())
	case record.StateRetry:
		c.must(c.rdb.ZAdd(ctx, record.Retry(c.queue), redis.Z{Score: 4e9, Member: id}).Err())
	case record.StateHeld:
		c.must(c.rdb.HSet(ctx, record.Task(c.queue, id), record.FieldKey, "k").Err())
		c.must(c.rdb.ZAdd(ctx, record.Held(c.queue), redis.Z{Score: 17e11, Member: id}).Err())
		c.must(c.rdb.ZAdd(ctx, record.HeldOf(c.queue, "k"), redis.Z{Score: 17e14, Member: id}).Err())
		c.must(c.rdb.ZAdd(ctx, record.HeldKeys(c.queue), redis.Z{Score: 4e12, Member: "k"}).Err())
	default:
		c.must(c.rdb.ZAdd(ctx, record.Parked(c.queue, state), redis.Z{Score: 17e11, Member: id}).Err())
	}
}

// states reads the states of jobs, "" for one that does not exist.
func (c *cellar) states(ids ...string) []string {
	c.t.Helper()
	found, err := lifecycle.Look(context.Background(), c.rdb, c.queue, ids)
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
				c.wait(ids[i], record.StatePending)
			case 1:
				c.wait(ids[i], record.StateScheduled)
			}
		}
		verdicts, err := lifecycle.Act(context.Background(), c.rdb, c.queue, lifecycle.Order{Action: lifecycle.Pause}, ids)
		c.must(err)
		want := []lifecycle.Verdict{{lifecycle.Done, record.StatePending}, {lifecycle.Done, record.StateScheduled}, {Outcome: lifecycle.NotFound}}
		for i, v := range verdicts {
			if v != want[i%3] {
				t.Errorf("verdict %d: %+v, want %+v", i, v, want[i%3])
			}
		}
		if verdicts, err = lifecycle.Act(context.Background(), c.rdb, c.queue, lifecycle.Order{Action: lifecycle.Pause}, nil); err != nil || len(verdicts) != 0 {
			t.Errorf("no ids: %v, %v", verdicts, err)
		}
	})
}

// An order for some states passes over the jobs in others.
func TestActInSomeStates(t *testing.T) {
	t.Parallel()
	all := []string{
		record.StatePending, record.StateScheduled, record.StateRetry, record.StateActive, record.StateWaiting,
		record.StatePaused, record.StateCompleted, record.StateFailed, record.StateCancelled, record.StateExpired,
		record.StateHeld,
	}
	for _, a := range []lifecycle.Action{lifecycle.Cancel, lifecycle.Pause, lifecycle.Resume, lifecycle.Retry, lifecycle.Expire} {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			inBothRedises(t, func(t *testing.T, c *cellar) {
				t.Helper()
				for _, s := range all {
					if s == record.StateCompleted {
						c.put(s, s, 0)
					} else {
						c.wait(s, s)
					}
				}
				for _, wanted := range all {
					verdicts, err := lifecycle.Act(context.Background(), c.rdb, c.queue, lifecycle.Order{Action: a, States: []string{"other", wanted}}, []string{"nobody"})
					c.must(err)
					if verdicts[0].Outcome != lifecycle.NotFound {
						t.Errorf("a job that does not exist: %+v", verdicts[0])
					}
				}
				before := c.look()
				verdicts, err := lifecycle.Act(context.Background(), c.rdb, c.queue, lifecycle.Order{Action: a, States: []string{"other"}}, all)
				c.must(err)
				for i, v := range verdicts {
					if v != (lifecycle.Verdict{Outcome: lifecycle.Skipped, State: all[i]}) {
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
			c.wait(ids[i], record.StatePending)
		}
		order := lifecycle.Order{Action: lifecycle.Cancel}
		_, err := lifecycle.Act(context.Background(), c.rdb, c.queue, order, ids[:1]) // loads the script
		c.must(err)
		left := 2
		c.rdb.AddHook(failing{&left})
		verdicts, err := lifecycle.Act(context.Background(), c.rdb, c.queue, order, ids[1:])
		if !errors.Is(err, errFailing) || !strings.HasPrefix(err.Error(), "cancel jobs of "+c.queue+": ") {
			t.Errorf("error %v", err)
		}
		for i, v := range verdicts {
			want := lifecycle.Verdict{Outcome: lifecycle.Done, State: record.StatePending}
			if i >= 400 {
				want = lifecycle.Verdict{Outcome: lifecycle.Unreached}
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
		c.wait("a", record.StateActive, record.FieldMark, "pause", record.FieldExpiresAt, "1700000000123")
		c.wait("b", record.StateScheduled, record.FieldGhost, "1")
		got, err := lifecycle.Look(context.Background(), c.rdb, c.queue, []string{"a", "nobody", "b"})
		c.must(err)
		if got[0].State != record.StateActive || got[0].Mark != "pause" || got[0].ExpiresAt.UnixMilli() != 1700000000123 || got[0].Ghost ||
			got[1] != (lifecycle.Standing{}) || got[2] != (lifecycle.Standing{State: record.StateScheduled, Ghost: true}) {
			t.Errorf("%+v", got)
		}
	})
}
