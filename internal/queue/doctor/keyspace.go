package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

// scanner is a Redis with keys of its own: the only one, or a master of a Cluster.
type scanner interface {
	Scan(ctx context.Context, cursor uint64, match string, count int64) *redis.ScanCmd
}

// cluster is implemented by a Cluster's client only.
type cluster interface {
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, client *redis.Client) error) error
}

// keyspace goes through all keys of our queues, of all masters.
func (p *pass) keyspace(ctx context.Context) error {
	if _, ok := p.rdb.(cluster); !ok {
		p.push(p.keys("", 0))
		return nil
	}
	if err := p.findMasters(ctx); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(p.masters))
	for _, name := range names {
		p.push(p.keys(name, 0))
	}
	return nil
}

// findMasters asks a Cluster for its masters.
func (p *pass) findMasters(ctx context.Context) error {
	c, ok := p.rdb.(cluster)
	if !ok || p.masters != nil {
		return nil
	}
	var mu sync.Mutex
	found := map[string]*redis.Client{}
	if err := c.ForEachMaster(ctx, func(_ context.Context, client *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found[client.Options().Addr] = client
		return nil
	}); err != nil {
		return fmt.Errorf("find the masters: %w", err)
	}
	p.masters = found
	return nil
}

// master returns the Redis to scan, nil if the Cluster has it no more.
func (p *pass) master(ctx context.Context, addr string) (scanner, error) {
	if addr == "" {
		return p.rdb, nil
	}
	if err := p.findMasters(ctx); err != nil {
		return nil, err
	}
	if client := p.masters[addr]; client != nil {
		return client, nil
	}
	return nil, nil
}

// scanCount is how many keys Redis passes in one SCAN.
const scanCount = perScript

// keys goes through the keys of one master from cursor on.
func (p *pass) keys(addr string, cursor uint64) step {
	return func(ctx context.Context) error {
		master, err := p.master(ctx, addr)
		if err != nil || master == nil {
			return err // the next pass sees its keys on another master
		}
		keys, next, err := master.Scan(ctx, cursor, "*{"+string(p.o.Namespace)+":*}:*", scanCount).Result()
		if err != nil {
			return fmt.Errorf("scan keys: %w", err)
		}
		if next != 0 {
			p.push(p.keys(addr, next))
		}
		return p.inspect(ctx, keys)
	}
}

// ofQueue splits a key of one of the queues, asynq's or ours.
func (p *pass) ofQueue(key string) (queue, rest string, asynqs bool) {
	prefix, rest, _ := strings.Cut(key, ":{")
	queue, rest, _ = strings.Cut(rest, "}:")
	asynqs = prefix == "asynq"
	if !asynqs && prefix != string(p.o.Namespace) || !p.o.Namespace.Owns(queue) {
		return "", "", false
	}
	return queue, rest, asynqs
}

// inspect checks keys of a SCAN: jobs and families at once, the sets of batches, keys and
// breakers in steps of their own.
func (p *pass) inspect(ctx context.Context, keys []string) error {
	byQueue := map[string][]any{}
	parents := map[string][]any{}
	var order, parentOrder []string
	var sets []index
	for _, key := range keys {
		queue, rest, asynqs := p.ofQueue(key)
		if id, ok := strings.CutPrefix(rest, "t:"); ok && asynqs {
			if byQueue[queue] == nil {
				order = append(order, queue)
			}
			byQueue[queue] = append(byQueue[queue], id)
		} else if batch, ok := strings.CutPrefix(rest, "batch:"); ok && !asynqs {
			sets = append(sets, index{queue, key, "a batch", "batch", batch})
		} else if name, ok := strings.CutPrefix(rest, "held:"); ok && !asynqs {
			sets = append(sets, index{queue, key, "the held jobs of a key", "held", name})
		} else if name, ok := strings.CutPrefix(rest, store.LinePrefix); ok && !asynqs {
			sets = append(sets, index{queue, key, "the order of a key", "line", name})
		} else if strings.HasPrefix(rest, store.DeferredPrefix) && !asynqs {
			sets = append(sets, index{queue, key, "the jobs that a breaker deferred", "deferred", ""})
		} else if parent, ok := strings.CutPrefix(rest, "children:"); ok && !asynqs {
			if parents[queue] == nil {
				parentOrder = append(parentOrder, queue)
			}
			parents[queue] = append(parents[queue], parent)
		}
	}
	p.pushEntries(sets)
	if err := p.inspectJobs(ctx, order, byQueue); err != nil {
		return err
	}
	var calls []call
	for _, queue := range parentOrder {
		calls = append(calls, call{childrenScript, queue, parents[queue]})
	}
	replies, err := p.runAll(ctx, calls)
	if err != nil {
		return fmt.Errorf("check families: %w", err)
	}
	for i, values := range replies {
		r := reply{values: values}
		p.take(calls[i].queue, "children", r.texts(1))
		if err := r.err("check families", calls[i].queue); err != nil {
			return err
		}
	}
	return nil
}

// inspectJobs checks jobs of some queues in one round trip.
func (p *pass) inspectJobs(ctx context.Context, queues []string, ids map[string][]any) error {
	var calls []call
	for _, queue := range queues {
		if p.known[queue] == nil {
			if err := p.stranger(ctx, queue, ids[queue]); err != nil {
				return err
			}
			continue
		}
		for chunk := range slices.Chunk(ids[queue], perScript) {
			args := append([]any{p.since.UnixNano(), p.o.Retention.Milliseconds()}, chunk...)
			calls = append(calls, call{lookScript, queue, args})
		}
	}
	replies, err := p.runAll(ctx, calls)
	if err != nil {
		return fmt.Errorf("check jobs: %w", err)
	}
	for i, values := range replies {
		if err := p.inspected(calls[i], values); err != nil {
			return err
		}
	}
	return nil
}

// stranger adds a queue that was not listed when the pass began: it is new, or its entry in
// asynq's list was lost.
func (p *pass) stranger(ctx context.Context, name string, ids []any) error {
	listed, err := p.rdb.SIsMember(ctx, store.QueuesKey, name).Result()
	if err == nil && !listed {
		p.found.add(KindQueueUnlisted, name, "", name)
		if !p.o.DryRun {
			err = p.rdb.SAdd(ctx, store.QueuesKey, name).Err()
		}
	}
	if err != nil {
		return fmt.Errorf("find queue %s: %w", name, err)
	}
	q := p.meet(name)
	p.queues = append(p.queues, name)
	p.push(
		func(ctx context.Context) error { return p.inFlight(ctx, []string{name}) },
		p.indexes(name), p.pendingList(q),
		func(ctx context.Context) error {
			return p.inspectJobs(ctx, []string{name}, map[string][]any{name: ids})
		})
	return nil
}

// inspected takes the reply of look.lua.
func (p *pass) inspected(c call, values []any) error {
	r := reply{values: values}
	jobs, pairs, marks := r.int(0), r.texts(1), r.texts(2)
	ids := c.args[2:]
	if r.bad || len(marks) != len(ids) {
		return fmt.Errorf("check jobs of %s: %w", c.queue, errReply)
	}
	p.found.checked += jobs
	p.take(c.queue, "", pairs)
	q := p.known[c.queue]
	for i := range ids {
		if id, ok := ids[i].(string); ok && marks[i] != "" && !q.pending.has(id) {
			q.suspects[id] = marks[i]
		}
	}
	if len(q.suspects) >= maxSuspects {
		p.push(p.suspectsOf(q))
	}
	return nil
}
