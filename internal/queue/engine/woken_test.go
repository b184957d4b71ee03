package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"

	"github.com/redis/go-redis/v9"
)

// lateReply delays one reply from Redis, so that the reply is older than the events meanwhile.
type lateReply struct {
	of   func(cmd redis.Cmder) bool
	once sync.Once
	// came is closed when Redis has replied, goOn delivers the reply.
	came, goOn chan struct{}
}

func (l *lateReply) hold(cmd redis.Cmder) {
	if l.of(cmd) {
		l.once.Do(func() {
			close(l.came)
			<-l.goOn
		})
	}
}

func (l *lateReply) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lateReply) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		l.hold(cmd)
		return err
	}
}

func (l *lateReply) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		l.hold(cmds[0])
		return err
	}
}

// The poll of a resync finds a job whose wake message was lost, whatever was under way when the job
// was enqueued: another poll, or a fetch that found the queue empty. The test runs the polls itself,
// so that it controls the order of the steps.
func TestResyncFindsJobWithoutMessage(t *testing.T) {
	t.Parallel()
	exists := func(cmd redis.Cmder) bool { return cmd.Name() == "exists" }
	fetch := func(cmd redis.Cmder) bool {
		return cmd.Name() == "evalsha" && store.ScriptName(cmd.Args()[1].(string)) == "fetch"
	}
	poll := (*Worker).pollOnce
	wake := func(w *Worker) { w.Ready(w.engines[0].o.Queues[0]) }
	resync := func(w *Worker) {
		w.Resync()
		<-w.pollNow
		w.pollOnce()
	}
	for name, of := range map[string]struct {
		late     func(redis.Cmder) bool // whose reply is from before the job
		begin    func(*Worker)          // has it sent
		priority string                 // of the job
		found    func(*Worker)          // the resync, or what is left of it if the engine slept when it came
	}{
		"resynced during a poll":                      {exists, poll, "", resync},
		"resynced during a fetch":                     {fetch, wake, "", resync},
		"resynced during a fetch of another priority": {fetch, wake, ":low", resync},
		"polled during a fetch":                       {fetch, wake, "", poll},
		"polled during a fetch of another priority":   {fetch, wake, ":low", poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := realQueue(t)
			e := New(s.rdb, Options{Queues: []string{s.queue, s.queue + ":low"}, Concurrency: 2})
			w := NewWorker(s.rdb, WorkerOptions{}, e)
			e.run.start(w.ready)
			defer w.Finish()
			defer w.CloseGate(context.Background())
			e.Wake()
			redistest.Eventually(t, "the worker is idle", func() bool { return !e.run.awake() })
			late := &lateReply{of: of.late, came: make(chan struct{}), goOn: make(chan struct{})}
			s.rdb.AddHook(late)
			of.begin(w)
			<-late.came
			job := queueIn(t, s.rdb)
			job.queue = s.queue + of.priority
			job.pending("unheard")
			of.found(w)
			latePoll := of.late(redis.NewIntCmd(t.Context(), "exists"))
			if latePoll {
				close(late.goOn)
			}
			redistest.Eventually(t, "the poll has ended", func() bool { return !w.polling.any() })
			if len(w.pollNow) > 0 {
				<-w.pollNow
				w.pollOnce()
				redistest.Eventually(t, "the next one has ended", func() bool { return !w.polling.any() })
			}
			if !latePoll {
				close(late.goOn)
			}
			if !w.Next() || w.Take().ID != "unheard" {
				t.Error("the worker does not look for the job any more")
			}
		})
	}
}

// backlogGate grants if there is something to fetch, as one with a declared rate.
type backlogGate struct{ openGate }

func (backlogGate) Flowing() bool { return false }

func (backlogGate) Wait(ctx context.Context, backlog func(context.Context) (int, error)) (Grant, error) {
	jobs, err := backlog(ctx)
	if err == nil && jobs == 0 {
		err = ErrNoBacklog
	}
	return Grant{Max: 1}, err
}

// The held jobs of a key that opens are fetched at once, also where a job is looked for before a
// permit is.
func TestOpenedKeyWakesWorkerWithRate(t *testing.T) {
	t.Parallel()
	s := realQueue(t)
	c := s.clientOf(t, backlogGate{}, 1)
	if _, err := c.Next(0); !errors.Is(err, errEmpty) { // the first fetch asks for all keys
		t.Fatalf("without a job: %v", err)
	}
	s.holding("k", time.Now().Add(time.Hour), "a")
	c.KeyOpened("k")
	d, err := c.Next(0)
	if err != nil || d.ID != "a" {
		t.Errorf("next %v, %v; want the job of the key", d, err)
	}
}
