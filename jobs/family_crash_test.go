package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// dieAfter lets nothing more of a client through to Redis after n calls, as if its
// process had died.
func dieAfter(rdb redis.UniversalClient, n int) redis.UniversalClient {
	rdb.AddHook(&deathHook{left: n})
	return rdb
}

var errDead = errors.New("the process has died")

type deathHook struct {
	mu   sync.Mutex
	left int
}

func (h *deathHook) dead(cmds []redis.Cmder) bool {
	if greeting(cmds) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left--
	return h.left < 0
}

func (h *deathHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *deathHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.dead([]redis.Cmder{cmd}) {
			cmd.SetErr(errDead)
			return errDead
		}
		return next(ctx, cmd)
	}
}

func (h *deathHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.dead(cmds) {
			for _, cmd := range cmds {
				cmd.SetErr(errDead)
			}
			return errDead
		}
		return next(ctx, cmds)
	}
}

// diesAnywhere runs do with clients that die after 0, 1, 2, ... calls to Redis,
// until one lives to its end. do returns the error that it has met; the others of its
// clients, on alive, do not die.
func diesAnywhere(t *testing.T, do func(t *testing.T, alive, dying redis.UniversalClient) error) {
	t.Helper()
	server := redistest.Start(t)
	alive := server.Client(t)
	for n := range 100 {
		err := do(t, alive, dieAfter(server.Client(t), n))
		if err != nil && !errors.Is(err, errDead) {
			t.Errorf("error %v", err)
		}
		if t.Failed() {
			t.Fatalf("where the process died after %d calls", n)
		}
		if err == nil {
			return
		}
	}
	t.Fatal("it has no end")
}

// work does what workers do every second: tells children of jobs that have ended.
func (b *bench) work(queues ...string) {
	b.t.Helper()
	for range 10 { // what one is told may be what another has to tell
		for _, q := range queues {
			parents, err := store.Undelivered(context.Background(), b.rdb, q, 100)
			b.must(err)
			for _, p := range parents {
				b.must(store.ReleaseChildren(context.Background(), b.rdb, p))
			}
		}
	}
}

// locate finds jobs as Readopt wants it.
func (b *bench) locate(ctx context.Context, ids []string) (map[string]string, error) {
	where := map[string]string{}
	for _, id := range ids {
		j, err := b.Get(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			where[id] = queueOf(j)
		}
	}
	return where, nil
}

// Whoever tells children may die at any point of it: the others finish it, and
// nobody is released twice.
func TestDeathWhileChildrenAreTold(t *testing.T) {
	t.Parallel()
	for _, end := range []string{store.StateCompleted, store.StateFailed} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			diesAnywhere(t, func(t *testing.T, alive, dying redis.UniversalClient) error {
				t.Helper()
				b, other := benchOn(t, alive), benchOn(t, alive)
				parent, second := b.enqueue(), b.enqueue()
				children := []*jobs.Job{
					b.enqueue(jobs.After(parent.ID)), other.enqueue(jobs.After(parent.ID)), other.enqueue(jobs.After(parent.ID)),
				}
				half := b.enqueue(jobs.After(parent.ID, second.ID))
				grandchild := b.enqueue(jobs.After(children[1].ID))
				b.start(parent)
				b.finish(parent, end, time.Now(), store.FieldLastError, "boom", store.FieldOutput, `{"itemid":7}`)
				err := store.ReleaseChildren(context.Background(), dying, store.Ref{Queue: b.queue(), ID: parent.ID})
				b.work(b.queue(), other.queue())
				if end == store.StateFailed {
					why := "parent " + parent.ID + " failed: boom"
					for _, c := range append(children, half) {
						b.wantCancelled(c, why)
					}
					b.wantCancelled(grandchild, "parent "+children[1].ID+" was cancelled: "+why)
					return err
				}
				b.wantStatus(half, jobs.Waiting)
				b.wantStatus(grandchild, jobs.Waiting)
				for _, c := range append(children, half) {
					if got := string(b.get(c.ID).Parents[parent.ID].Output); got != `{"itemid":7}` {
						t.Errorf("a child has the output %q", got)
					}
				}
				b.complete(second)
				want := []string{children[0].ID, half.ID}
				if diff := cmp.Diff(want, b.waiting(b.queue())); diff != "" {
					t.Errorf("queue (-want +got):\n%s", diff)
				}
				if got := len(other.waiting(other.queue())); got != 2 {
					t.Errorf("%d of 2 children in the other queue", got)
				}
				return err
			})
		})
	}
}

// Whoever cancels may die at any point: once the job is cancelled its children are
// too, in the end.
func TestDeathInACancel(t *testing.T) {
	t.Parallel()
	diesAnywhere(t, func(t *testing.T, alive, dying redis.UniversalClient) error {
		t.Helper()
		b := benchOn(t, alive)
		parent := b.enqueue()
		child := b.enqueue(jobs.After(parent.ID))
		grandchild := b.enqueue(jobs.After(child.ID))
		err := benchOn(t, dying).Cancel(context.Background(), parent.ID)
		b.work(b.queue())
		want := b.get(parent.ID).Status
		if want == jobs.Pending && err != nil {
			want = jobs.Waiting // it had not begun
		}
		b.wantStatus(child, want)
		b.wantStatus(grandchild, want)
		return err
	})
}

// Whoever enqueues a family may die at any point: what was written can be made whole
// by a sweep of the jobs that wait, and by repeating the enqueue with the same ids.
func TestDeathInAnEnqueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, repair := range map[string]func(b, other *bench, specs []*jobs.Spec){
		"sweep": func(b, other *bench, _ []*jobs.Spec) {
			for _, at := range []*bench{b, other} {
				ids, err := at.rdb.ZRange(ctx, store.ParkedKey(at.queue(), store.StateWaiting), 0, -1).Result()
				at.must(err)
				for _, id := range ids {
					at.must(store.Readopt(ctx, at.rdb, store.Ref{Queue: at.queue(), ID: id}, at.locate))
				}
			}
		},
		"repeat": func(b, other *bench, specs []*jobs.Spec) {
			results, err := benchOn(b.t, b.rdb, jobs.WithDestinations(b.dest, other.dest)).EnqueueMany(ctx, specs)
			b.must(err)
			for i, r := range results {
				if r.Err != nil {
					b.t.Errorf("repeated, result %d: %v", i, r.Err)
				}
			}
		},
	} {
		for _, end := range []string{store.StatePending, store.StateCompleted, store.StateFailed} {
			t.Run(name+", parent "+end, func(t *testing.T) {
				t.Parallel()
				diesAnywhere(t, func(t *testing.T, alive, dying redis.UniversalClient) error {
					t.Helper()
					b, other := benchOn(t, alive), benchOn(t, alive)
					parents := []*jobs.Job{b.enqueue(), other.enqueue()}
					for _, p := range parents {
						if end != store.StatePending {
							b.run(p, end)
						}
					}
					id := func(i int) string { return fmt.Sprint(b.dest, "-", i) }
					specs := []*jobs.Spec{
						jobs.New(b.dest, 0, jobs.ID(id(0)), jobs.After(idsOf(parents)...)),
						jobs.New(other.dest, 1, jobs.ID(id(1)), jobs.After(parents[0].ID)),
						jobs.New(b.dest, 2, jobs.ID(id(2)), jobs.After(id(0))),
					}
					_, err := benchOn(t, dying, jobs.WithDestinations(b.dest, other.dest)).EnqueueMany(ctx, specs)
					repair(b, other, specs)
					if end == store.StatePending {
						for _, p := range parents {
							b.complete(p)
						}
					}
					b.work(b.queue(), other.queue())
					want := []jobs.Status{jobs.Pending, jobs.Pending, jobs.Waiting}
					if end == store.StateFailed {
						want = []jobs.Status{jobs.Cancelled, jobs.Cancelled, jobs.Cancelled}
					}
					for i, s := range want {
						j, getErr := b.Get(ctx, id(i))
						switch {
						case errors.Is(getErr, jobs.ErrNotFound) && err != nil && name == "sweep": // never written
						case getErr != nil:
							t.Error(getErr)
						case j.Status != s:
							t.Errorf("job %d is %s, want %s", i, j.Status, s)
						}
					}
					return err
				})
			})
		}
	}
}

// Whoever retries a child may die before its parents know of it again.
func TestDeathInARetry(t *testing.T) {
	t.Parallel()
	diesAnywhere(t, func(t *testing.T, alive, dying redis.UniversalClient) error {
		t.Helper()
		b := benchOn(t, alive)
		ctx := context.Background()
		parent := b.enqueue()
		child := b.enqueue(jobs.After(parent.ID))
		b.fail(parent)
		b.must(b.Retry(ctx, parent.ID))
		err := benchOn(t, dying).Retry(ctx, child.ID)
		if b.get(child.ID).Status == jobs.Cancelled && err != nil {
			return err // it had not begun
		}
		b.must(store.Readopt(ctx, b.rdb, store.Ref{Queue: b.queue(), ID: child.ID}, b.locate))
		b.complete(parent)
		b.wantStatus(child, jobs.Pending)
		return err
	})
}

// A parent that ends while its child is enqueued is found ended, or finds the child.
func TestParentEndsWhileItsChildIsEnqueued(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 200 {
		parent := running(b)
		var child *jobs.Job
		var err error
		var both sync.WaitGroup
		both.Go(func() { child, err = b.Enqueue(context.Background(), jobs.New(b.dest, i, jobs.After(parent.ID))) })
		b.finish(parent, store.StateCompleted, time.Now())
		b.tell(parent)
		both.Wait()
		b.must(err)
		b.work(b.queue())
		if got := b.get(child.ID).Status; got != jobs.Pending {
			t.Fatalf("round %d: the child was enqueued as %s and is %s", i, child.Status, got)
		}
	}
	if got := len(b.waiting(b.queue())); got != 200 {
		t.Errorf("%d jobs in the queue", got)
	}
}
