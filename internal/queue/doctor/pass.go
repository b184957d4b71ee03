package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sizes of one step, so that no script keeps Redis busy for more than about a
// millisecond.
const (
	perScript    = 200  // jobs of a script that checks them
	perSet       = 100  // entries of a set that may answer with more
	perTrip      = 8    // such scripts, or small ones, that share a round trip
	perRead      = 2000 // ids that are only read
	perLost      = 50   // ids that are searched at the ends of a list
	shortList    = 1000 // ids of a list that is counted in one script
	maxSuspects  = 20000
	familyAtOnce = 10
)

// step is a bounded part of a pass. It pushes the steps that follow it.
type step func(ctx context.Context) error

// pass is one round through all queues.
type pass struct {
	rdb    redis.UniversalClient
	o      Options
	found  *findings
	todo   []step // the last one is next
	queues []string
	known  map[string]*queueState
	// since is when the pass began, by Redis's clock: before any pending list was
	// read.
	since time.Time
	// masters are the clients of a Cluster's masters by address, kept for one
	// portion: they are closed when the Cluster changes.
	masters map[string]*redis.Client
	// familyErr is the first error of Options.Family.
	familyErr error
}

// queueState is what a pass knows of a queue.
type queueState struct {
	name    string
	pending *listed
	// suspects have to be in the pending list and were not read there: by id, their marks of look.lua.
	suspects map[string]string
}

func newPass(rdb redis.UniversalClient, o Options) *pass {
	p := &pass{rdb: rdb, o: o, known: map[string]*queueState{}}
	p.push(p.begin)
	return p
}

// push makes the steps the next ones, in this order.
func (p *pass) push(steps ...step) {
	for _, one := range slices.Backward(steps) {
		p.todo = append(p.todo, one)
	}
}

func (p *pass) next(ctx context.Context) error {
	one := p.todo[len(p.todo)-1]
	p.todo = p.todo[:len(p.todo)-1]
	return one(ctx)
}

// begin pushes the steps of the pass. Jobs are checked after the indexes, so that a job that
// was removed from a wrong index is put into the right one.
func (p *pass) begin(ctx context.Context) error {
	var err error
	if p.queues, err = p.o.Namespace.ListQueues(ctx, p.rdb); err != nil {
		return err
	}
	if p.since, err = p.serverTime(ctx); err != nil {
		return err
	}
	var indexes, lists, families []step
	for _, name := range p.queues {
		q := p.meet(name)
		indexes = append(indexes, p.indexes(name))
		lists = append(lists, p.pendingList(q))
		if p.o.Family != nil && !p.o.DryRun {
			families = append(families, p.families(name))
		}
	}
	steps := append(indexes, lists...)
	steps = append(steps, p.keyspace, p.allSuspects)
	steps = append(steps, families...)
	p.push(append(steps, p.served)...)
	return nil
}

// meet adds a queue to the pass.
func (p *pass) meet(name string) *queueState {
	q := &queueState{name: name, suspects: map[string]string{}}
	p.known[name] = q
	return q
}

// serverTime is the time by which queues go.
func (p *pass) serverTime(ctx context.Context) (time.Time, error) {
	now, err := p.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time: %w", err)
	}
	return now, nil
}
