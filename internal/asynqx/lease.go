package asynqx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

const (
	// leaseDuration is how long a worker holds a job without a heartbeat. asynq keeps a
	// lease of the same length in memory, which bounds its acknowledgements.
	leaseDuration = 30 * time.Second
	// heartbeats is how many fall within a lease.
	heartbeats = 6
	// leasesAtOnce bounds one call, so that it stays short for Redis.
	leasesAtOnce = 100
)

// Start begins the heartbeat: it extends the leases of the jobs in hand until Finish.
// It is called once, when the Server has started.
func (c *Client) Start() { c.heartbeat.Go(c.keepLeases) }

// keepLeases extends the leases six times within their length, and sooner after a
// failure: a job whose lease has lapsed is still this worker's until it is recovered.
func (c *Client) keepLeases() {
	every := c.o.Lease / heartbeats
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-c.hard.Done():
			return
		case <-t.C:
			c.pulse.beat(time.Now(), c.o.Lease)
		}
		pause := every
		if err := c.ExtendLeases(c.hard); err != nil {
			if !redis.IsOOMError(err) {
				c.health.failed(err)
			}
			pause = every / 5
		}
		t.Reset(pause)
	}
}

// ExtendLeases extends the leases of all jobs in hand: those that run, those that wait
// for a slot, and those whose outcome is not on record yet.
func (c *Client) ExtendLeases(ctx context.Context) error {
	byQueue := map[string][]*Delivery{}
	for _, d := range c.inHand.all() {
		byQueue[d.Queue] = append(byQueue[d.Queue], d)
	}
	var mu sync.Mutex
	var errs []error
	var queues sync.WaitGroup // side by side: they may lie on different nodes
	for queue, ds := range byQueue {
		queues.Go(func() {
			for part := range slices.Chunk(ds, leasesAtOnce) {
				if err := c.extend(ctx, queue, part); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	queues.Wait()
	return errors.Join(errs...)
}

func (c *Client) extend(ctx context.Context, queue string, ds []*Delivery) error {
	ctx, cancel := context.WithTimeout(ctx, min(redisTimeout, c.o.Lease/heartbeats))
	defer cancel()
	keys := []string{store.LeaseKey(queue)}
	args := []any{queue, c.o.Lease.Milliseconds()}
	for _, d := range ds {
		keys = append(keys, store.TaskKey(queue, d.ID))
		args = append(args, d.ID, d.run)
	}
	if err := extendScript.Run(ctx, c.UniversalClient, keys, args...).Err(); err != nil {
		return fmt.Errorf("asynqx: extend the leases of %d jobs of %s: %w", len(ds), queue, err)
	}
	return nil
}

// lapsed stands in for asynq's list of tasks whose lease has expired, which goes by the
// worker's clock: it goes by Redis's, and leaves out what this Client has in hand, whose
// leases are about to be extended.
func (c *Client) lapsed(queue string) *redis.Cmd {
	messages := []any{}
	for skip := 0; c.ctx.Err() == nil; {
		ctx, cancel := context.WithTimeout(c.ctx, redisTimeout)
		reply, err := lapsedScript.Run(ctx, c.UniversalClient, []string{store.LeaseKey(queue)},
			queue, c.o.Lease.Milliseconds(), skip, leasesAtOnce).Slice()
		cancel()
		if err != nil {
			if c.ctx.Err() == nil {
				c.health.failed(fmt.Errorf("asynqx: list expired leases of %s: %w", queue, err))
			}
			break // what was found is recovered
		}
		for i := 0; i+2 < len(reply); i += 3 {
			id, _ := reply[i].(string)
			if d := c.inHand.get(id); (d != nil && d.run == reply[i+1]) || reply[i+2] == "" {
				continue
			}
			messages = append(messages, reply[i+2])
		}
		if len(reply) < 3*leasesAtOnce {
			break
		}
		skip += leasesAtOnce
	}
	return redis.NewCmdResult(messages, nil)
}

// pulse notes whether the heartbeat was kept. Redis's being away does not stop it.
type pulse struct {
	mu      sync.Mutex
	last    time.Time // the last beat
	stopped time.Time // the last one that came a whole lease late
}

// beat returns when the heartbeat last came late.
func (p *pulse) beat(now time.Time, lease time.Duration) (stopped time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The monotonic clock stands still while a machine is suspended, the wall clock does
	// not.
	if !p.last.IsZero() && max(now.Sub(p.last), now.Round(0).Sub(p.last.Round(0))) > lease {
		p.stopped = now
	}
	p.last = now
	return p.stopped
}

// StoodStill reports whether this process has stood still since an instant, for so long
// that its leases lapsed.
func (c *Client) StoodStill(since time.Time) bool {
	// The heartbeat may come to it only after this.
	return c.pulse.beat(time.Now(), c.o.Lease).After(since)
}

// ZAddXX answers asynq's extension of leases, the only ZADD XX that it sends. asynq's
// own lease, in memory, is extended by the answer; the one in Redis by ExtendLeases.
func (c *Client) ZAddXX(context.Context, string, ...redis.Z) *redis.IntCmd {
	return redis.NewIntResult(0, c.hard.Err())
}
