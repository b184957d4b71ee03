package modeltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/asynqx"
	"github.com/tidegate/tidegate/internal/engine"
)

// What a process does with asynq's times.
const (
	leaseFor  = 30 * time.Second // asynq's
	graceFor  = 30 * time.Second // asynq's, after the lease
	beatEvery = time.Second
	spread    = time.Nanosecond // of jobs that come back

	maxCrashes      = 2
	retention       = time.Minute
	retentionFailed = 2 * time.Minute
)

// The scripts of asynq that its Server sends, as which the test calls; asynqx's
// contract test holds them against asynq's source.
const (
	dequeueCmd  = "a8153319360adc71cdc370107f8ab9786f204765"
	completeCmd = "117dca952700588e559c7ace20b925096d587974"
	retryCmd    = "65fa409c88198a681c53e0892d8276eca0145694"
	requeueCmd  = "f34cbfd11d1fc8019af55b50c447fc68eb8b29e5"
)

// process is a worker that serves one queue: asynqx's client, with the test in
// place of asynq's Server and of the handlers.
type process struct {
	w           *world
	name, queue string
	concurrency int
	engine      *engine.Engine
	worker      *engine.Worker
	client      *asynqx.Client
	wire        *wire
	gate        *gate
	answers     chan string // ids that it was handed
	asking      bool        // it waits at the gate for its next job
	stopping    atomic.Bool // it asks no more

	hands   map[string]*hand // as in asynqx
	stalled bool             // it lives, but its leases are not extended
	dead    bool
}

// hand is a job in the hands of a process.
type hand struct {
	id       string
	delivery *engine.Delivery
	cut      bool // its call was cut
	outcome  store.Outcome
	applied  *store.Applied // what came of the outcome
	returned time.Time      // when its handler did, if asynq has forgotten it then
}

func (w *world) newProcess(queue string, concurrency int) *process {
	w.started++
	p := &process{
		w: w, name: "worker" + strconv.Itoa(w.started), queue: queue, concurrency: concurrency,
		wire: &wire{UniversalClient: w.rdb}, gate: &gate{look: make(chan engine.Grant)},
		answers: make(chan string, 10), hands: map[string]*hand{},
	}
	p.engine = engine.New(p.wire, engine.Options{
		Queues: []string{queue}, Concurrency: concurrency, Worker: p.name, Gate: p.gate,
		Retention: retention, RetentionFailed: retentionFailed, MaxCrashes: maxCrashes,
		RecoverSpread: spread,
	})
	p.worker = engine.NewWorker(p.wire, engine.WorkerOptions{}, p.engine)
	p.client = asynqx.New(p.wire, byHand{p.worker, p.engine})
	return p
}

// byHand is a worker that fetches when the test asks it to.
type byHand struct {
	*engine.Worker
	engine *engine.Engine
}

func (w byHand) Next() (message string, ok bool) {
	w.engine.Wake() // the test writes without messages
	if d, _ := w.engine.Next(5 * time.Second); d != nil {
		return d.Message(), true
	}
	return "", false
}

// end lets go of what the process holds in memory.
func (p *process) end() {
	p.stopping.Store(true)
	p.engine.Abort()
	p.engine.Finish()
}

// gate lets a process look for jobs once whenever the test says so.
type gate struct {
	look    chan engine.Grant
	waiting atomic.Bool // somebody waits
}

func (g *gate) Wait(ctx context.Context, _ func(context.Context) (int, error)) (engine.Grant, error) {
	g.waiting.Store(true)
	defer g.waiting.Store(false)
	select {
	case grant := <-g.look:
		return grant, nil
	case <-ctx.Done():
		return engine.Grant{}, ctx.Err()
	}
}

func (*gate) Admit(_ context.Context, _ string, _ int, permit any) engine.Admission {
	return engine.Admission{Permit: permit}
}
func (*gate) Flowing() bool                        { return false }
func (*gate) Unused(context.Context, engine.Grant) {}
func (*gate) Close(context.Context) error          { return nil }

// busy is how many of its slots are taken.
func (p *process) busy() int {
	n := 0
	for _, h := range p.hands {
		if h.returned.IsZero() {
			n++
		}
	}
	return n
}

// ask asks for the next job as asynq does, until there is one.
func (p *process) ask() {
	p.asking = true
	go func() {
		for !p.stopping.Load() {
			msg, err := p.client.EvalSha(ctx, dequeueCmd,
				[]string{store.PendingKey(p.queue), store.PausedKey(p.queue), store.ActiveKey(p.queue), store.LeaseKey(p.queue)},
				time.Now().Add(leaseFor).Unix(), store.TaskPrefix(p.queue)).Text()
			if errors.Is(err, redis.Nil) {
				sleep(time.Millisecond) // as asynq does
				continue
			}
			m, err := store.DecodeMessage([]byte(msg))
			if err != nil {
				p.answers <- err.Error()
				return
			}
			p.answers <- m.ID
			return
		}
	}()
	p.w.settleDown()
}

// comeToTheGate waits until the process waits there for its next job.
func (p *process) comeToTheGate() {
	if !p.asking {
		p.ask()
	}
	for !p.gate.waiting.Load() {
		p.w.pass(time.Millisecond)
	}
}

// look has a process that waits at the gate, with so many slots free, look for jobs,
// and returns the ids that it was handed.
func (p *process) look(g engine.Grant, free int) []string {
	p.gate.look <- g
	p.w.settleDown()
	var got []string
	for len(p.answers) > 0 {
		got = append(got, <-p.answers)
		if p.asking = false; len(got) < free {
			p.ask() // there may be others that came along
		}
	}
	p.engine.Wake() // where there was nothing it rests, and goes back to the gate
	p.w.settleDown()
	return got
}

// heartbeat keeps the leases of jobs in hand, as a started client does every 5 s.
func (p *process) heartbeat() {
	if p.stalled || p.dead {
		return
	}
	p.w.must(p.engine.ExtendLeases(ctx))
}

// sendAck acknowledges a job as asynq does when its handler has returned.
func (p *process) sendAck(h *hand) error {
	task := store.TaskKey(p.queue, h.id)
	ctx, cancel := context.WithTimeout(ctx, leaseFor)
	defer cancel()
	if h.outcome.Kind == store.KindComplete {
		return p.client.EvalSha(ctx, completeCmd, []string{
			store.ActiveKey(p.queue), store.LeaseKey(p.queue), store.CompletedKey(p.queue), task,
			p.stats(":" + time.Now().UTC().Format(time.DateOnly)), p.stats(""),
		}, h.id, time.Now().Add(90*24*time.Hour).Unix(), 0, "", int64(1<<63-1)).Err()
	}
	return p.client.EvalSha(ctx, retryCmd, []string{task, store.ActiveKey(p.queue)}, h.id, encoded(p.queue, h.id, "not completed")).Err()
}

func (p *process) stats(suffix string) string { return "asynq:{" + p.queue + "}:processed" + suffix }

// encoded is a job's message as asynq sends it with a failure.
func encoded(queue, id, problem string) []byte {
	return (&store.Message{Type: store.TaskType, ID: id, Queue: queue, ErrorMsg: problem}).AppendTo(nil)
}

// sendRequeue puts a job back at the end of a shutdown.
func (p *process) sendRequeue(id string) error {
	return p.client.EvalSha(ctx, requeueCmd, []string{
		store.ActiveKey(p.queue), store.LeaseKey(p.queue), store.PendingKey(p.queue), store.TaskKey(p.queue, id),
	}, id).Err()
}

// sendRecover tells Redis that the lease of a job was found lost.
func (p *process) sendRecover(id string) error {
	return p.client.EvalSha(ctx, retryCmd, []string{store.TaskKey(p.queue, id), store.ActiveKey(p.queue)},
		id, encoded(p.queue, id, asynq.ErrLeaseExpired.Error())).Err()
}

// sendBeat and sendJanitor are what a worker does once in a while.
func (p *process) sendBeat() (moved int64, err error) {
	p.worker.Resync()
	return int64(p.worker.Maintain()), nil
}

func (p *process) sendJanitor() error {
	p.engine.Purge(ctx, p.queue)
	return nil
}

func (p *process) String() string {
	if p.stalled {
		return fmt.Sprintf("%s of %s (stalled)", p.name, p.queue)
	}
	return fmt.Sprintf("%s of %s", p.name, p.queue)
}

// GoString keeps what rapid logs short.
func (p *process) GoString() string { return p.String() }

// sortedHands returns what it has in hand by id.
func (p *process) sortedHands() []*hand {
	return slices.SortedFunc(maps.Values(p.hands), func(a, b *hand) int { return cmp.Compare(a.id, b.id) })
}
