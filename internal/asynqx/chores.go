package asynqx

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// chores are what a worker does besides publishing, for whoever needs it: it ends
// jobs whose time is over, tells children how their parents ended, and releases jobs
// that a breaker deferred. One goroutine does them, as long as there are any.
type chores struct {
	mu   sync.Mutex
	todo []chore
	// repeats are chores that met an error and that the next beat would not find by
	// itself.
	repeats []chore
	busy    bool
	told    time.Time // when an error was last logged
	done    sync.WaitGroup
}

type chore struct {
	queue   string
	kind    choreKind
	breaker string // of releaseDeferred
}

type choreKind int

const (
	sweepExpired choreKind = iota
	tellChildren
	releaseDeferred
)

func (k *chores) wait() { k.done.Wait() }

func (k *chores) repeatLater(one chore) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.repeats, one) {
		k.repeats = append(k.repeats, one)
	}
}

func (k *chores) takeRepeats() []chore {
	k.mu.Lock()
	defer k.mu.Unlock()
	repeats := k.repeats
	k.repeats = nil
	return repeats
}

// add queues a chore unless it is queued already.
func (c *Client) add(one chore) {
	k := &c.chores
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.todo, one) || c.hard.Err() != nil {
		return
	}
	k.todo = append(k.todo, one)
	if !k.busy {
		k.busy = true
		k.done.Go(c.doChores)
	}
}

// tell queues the telling of children of jobs of the queue that have ended.
func (c *Client) tell(queue string) { c.add(chore{queue: queue, kind: tellChildren}) }

func (c *Client) doChores() {
	k := &c.chores
	for {
		k.mu.Lock()
		if len(k.todo) == 0 || c.hard.Err() != nil {
			k.todo, k.busy = nil, false
			k.mu.Unlock()
			return
		}
		one := k.todo[0]
		k.todo = k.todo[1:]
		k.mu.Unlock()
		if err := c.do(one); err != nil {
			c.choreFailed(err) // the next beat finds it again
		}
	}
}

// choreFailed logs an error. What Redis itself refuses, because it is full for
// instance, does not mean that it is gone.
func (c *Client) choreFailed(err error) {
	if _, refused := errors.AsType[redis.Error](err); !refused || slotMoves(err) {
		c.health.failed(err)
		return
	}
	k := &c.chores
	k.mu.Lock()
	quiet := time.Since(k.told) < time.Minute
	if !quiet {
		k.told = time.Now()
	}
	k.mu.Unlock()
	if !quiet {
		c.o.Logger.Warn("jobs could not be expired or released; it is tried again", "error", err)
	}
}

func (c *Client) do(one chore) error {
	switch one.kind {
	case sweepExpired:
		return c.sweep(one.queue)
	case tellChildren:
		return store.ReleaseAllChildren(c.hard, c.UniversalClient, one.queue, c.Wake)
	case releaseDeferred:
		return c.release(one)
	}
	return nil
}

// sweep ends the jobs of a queue whose time is over.
func (c *Client) sweep(queue string) error {
	for {
		ctx, cancel := c.bounded()
		n, more, err := store.Sweep(ctx, c.UniversalClient, queue)
		cancel()
		if n > 0 {
			c.tell(queue)
			if c.o.Expired != nil {
				c.o.Expired(queue, n)
			}
		}
		if err != nil || !more {
			return err
		}
	}
}
