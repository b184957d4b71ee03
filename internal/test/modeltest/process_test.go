package modeltest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/queue/engine"
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

// process is a worker that serves one queue, with the test in place of asynq's Server and of the
// handlers.
type process struct {
	w           *world
	name, queue string
	concurrency int
	engine      *engine.Engine
	worker      *engine.Worker
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
		RecoverSpread: spread, Scarce: p.gate.scarce.Load,
		Lines: store.Lines{ByKey: queue == orderedQueue, Block: w.book.blocks},
	})
	p.worker = engine.NewWorker(p.wire, engine.WorkerOptions{}, p.engine)
	return p
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
	waiting atomic.Bool  // somebody waits
	scarce  atomic.Bool  // keys take turns
	refuses atomic.Value // string: the key whose breaker refuses, "" for none
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

func (g *gate) Admit(_ context.Context, _, key string, _ int, _ string, permit any) engine.Admission {
	if key != "" && key == g.refuses.Load() {
		return engine.Admission{Verdict: engine.KeyRefused, Until: time.Now().Add(time.Second)}
	}
	return engine.Admission{Permit: permit}
}
func (*gate) Flowing() bool                        { return false }
func (*gate) Forwards() bool                       { return false }
func (*gate) Unused(context.Context, engine.Grant) {}
func (*gate) Close(context.Context) error          { return nil }

// busy is how many of its slots are taken.
func (p *process) busy() int { return len(p.hands) }

// ask asks for the next job, until there is one.
func (p *process) ask() {
	p.asking = true
	go func() {
		for !p.stopping.Load() {
			p.engine.Wake() // the test writes without messages
			if d, _ := p.engine.Next(5 * time.Second); d != nil {
				p.answers <- d.ID
				return
			}
			sleep(time.Millisecond)
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

// recover recovers a job whose lease was found lapsed.
func (p *process) recover(id string) {
	p.engine.Recover(p.queue, store.Lapsed{RunOf: store.RunOf{ID: id}})
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
