package jobs

import (
	"context"
	"slices"

	"github.com/tidegate/tidegate/internal/store"
)

// Workers end jobs whose time is over within two seconds. Whoever looks at jobs does
// it too, so that they are seen as what they are where no worker runs.

// expireSeen ends those of the jobs just read whose time is over, and returns them
// as they are then. If Redis fails they are returned as they were read.
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
			if err := c.tellChildren(ctx, queue); err != nil {
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

// expireHeads does that to what was read for a page.
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

// readWithoutPayloads reads jobs of a queue; those that are not there are left out.
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

// sweepsPerLook bounds what a look does besides looking: 2000 jobs are ended in
// about 40 ms.
const sweepsPerLook = 20

// sweep ends jobs of the queue whose time is over, up to so many hundreds of them.
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
		return c.tellChildren(ctx, queue)
	}
	return nil
}
