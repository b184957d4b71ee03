package jobs

import (
	"context"
	"slices"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Workers expire overdue jobs within two seconds. Reads expire them too, so that their status
// is right where no worker runs.

// expireSeen expires the overdue ones of the jobs just read, and returns all of them,
// updated. If Redis fails it returns them as they were read.
func (c *Client) expireSeen(ctx context.Context, seen []*Job) []*Job {
	return c.expireAndRead(ctx, seen, func(queue string, ids []string) ([]*Job, error) {
		return c.readAll(ctx, []string{queue}, ids)
	})
}

func (c *Client) expireAndRead(ctx context.Context, seen []*Job, read func(queue string, ids []string) ([]*Job, error)) []*Job {
	due := map[string][]int{}
	now := c.now()
	seen = slices.Clone(seen)
	for i, j := range seen {
		if !j.Status.Final() && j.Status != Running && j.ExpiredAt(now) {
			queue := c.ns.Queue(j.Destination, store.Priority(j.Priority))
			due[queue] = append(due[queue], i)
		}
	}
	for queue, places := range due {
		ids := make([]string, len(places))
		for k, i := range places {
			ids[k] = seen[i].ID
		}
		n, err := store.ExpireDue(ctx, c.rdb, queue, ids)
		if err != nil {
			return seen
		}
		if n > 0 {
			if err := c.releaseChildren(ctx, queue); err != nil {
				return seen
			}
		}
		again, err := read(queue, ids)
		if err != nil {
			return seen
		}
		now := make(map[string]*Job, len(again))
		for _, j := range again {
			now[j.ID] = j
		}
		for _, i := range places {
			if j := now[seen[i].ID]; j != nil {
				seen[i] = j
			}
		}
	}
	return seen
}

// expireHeads is expireSeen for the jobs of a page.
func (c *Client) expireHeads(ctx context.Context, heads []*head) {
	for _, h := range heads {
		var some []*Job
		var places []int
		for i, j := range h.jobs {
			if j != nil {
				some, places = append(some, j), append(places, i)
			}
		}
		for k, j := range c.expireAndRead(ctx, some, func(queue string, ids []string) ([]*Job, error) {
			return c.readWithoutPayloads(ctx, queue, ids)
		}) {
			h.jobs[places[k]] = j
		}
	}
}

// readWithoutPayloads reads jobs of a queue; missing ones are left out.
func (c *Client) readWithoutPayloads(ctx context.Context, queue string, ids []string) ([]*Job, error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = store.TaskKey(queue, id)
	}
	var out []*Job
	for chunk := range slices.Chunk(keys, recordsAtOnce) {
		outlines, err := c.outlines(ctx, chunk)
		if err != nil {
			return nil, err
		}
		for _, o := range outlines {
			if j := o.job(); j != nil {
				out = append(out, j)
			}
		}
	}
	return out, nil
}

// sweepsPerRead bounds the sweeps of one read: 2000 jobs expire in about 40 ms.
const sweepsPerRead = 20

// sweep expires overdue jobs of the queue, at most hundreds times a hundred.
func (c *Client) sweep(ctx context.Context, queue string, hundreds int) error {
	ended := 0
	for range hundreds {
		n, more, err := store.Sweep(ctx, c.rdb, queue)
		if err != nil {
			return err
		}
		if ended += n; !more {
			break
		}
	}
	if ended > 0 {
		return c.releaseChildren(ctx, queue)
	}
	return nil
}
