package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// registerAtOnce is how many parents are updated at a time.
const registerAtOnce = 8

// sendChildren enqueues jobs that have parents, in the order given, because a job
// may be the parent of a later one.
func (c *Client) sendChildren(ctx context.Context, ps []*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
	var duplicates []duplicate
	for len(ps) > 0 {
		n := independent(ps)
		found, err := c.sendSiblings(ctx, ps[:n], elsewhere, results)
		if err != nil {
			return duplicates, err
		}
		duplicates = append(duplicates, found...)
		ps = ps[n:]
	}
	return duplicates, nil
}

// independent counts the first jobs that do not wait for one another and have different ids:
// whether a repeated id exists must be known before its second job is sent.
func independent(ps []*prepared) int {
	ids := map[string]bool{}
	for i, p := range ps {
		if ids[p.job.ID] || slices.ContainsFunc(p.job.After, func(id string) bool { return ids[id] }) {
			return i
		}
		ids[p.job.ID] = true
	}
	return len(ps)
}

// sendSiblings enqueues jobs whose parents have been enqueued. It writes them first and
// registers them with their parents then: a parent that finishes in between is found
// finished, and the workers' sweep repairs a crash in between.
func (c *Client) sendSiblings(ctx context.Context, ps []*prepared, elsewhere map[*prepared]string, results []Result) ([]duplicate, error) {
	var parents []string
	for _, p := range ps {
		parents = append(parents, p.job.After...)
		if p.given {
			parents = append(parents, p.job.ID)
		}
	}
	where, err := c.locate(ctx, unique(parents))
	if err != nil {
		return nil, fmt.Errorf("look up parents: %w", err)
	}
	owners, err := c.ownersOfParents(ctx, ps, where)
	if err != nil {
		return nil, fmt.Errorf("look up parents: %w", err)
	}
	byQueue := map[string][]*prepared{}
	var order []string
	var duplicates []duplicate
	for _, p := range ps {
		if queue := where[p.job.ID]; p.given && queue != "" {
			// The state of the parents does not matter.
			duplicates = append(duplicates, duplicate{p, queue})
			continue
		}
		if problem := unknownParents(p, where, owners); problem != nil {
			results[p.index].Err = fmt.Errorf("jobs: enqueue: %w", problem)
			continue
		}
		if byQueue[p.queue] == nil {
			order = append(order, p.queue)
		}
		byQueue[p.queue] = append(byQueue[p.queue], p)
	}
	children := map[string][]store.Ref{}
	byRef := map[store.Ref]*Result{}
	found, failed := c.send(ctx, order, byQueue, elsewhere, results)
	duplicates = append(duplicates, found...)
	for _, queue := range order {
		for _, p := range byQueue[queue] {
			if results[p.index].Job != p.job || p.job.Status != Waiting {
				continue // a duplicate, or expired at once
			}
			ref := store.Ref{Queue: queue, ID: p.job.ID}
			byRef[ref] = &results[p.index]
			for _, parent := range p.job.After {
				children[parent] = append(children[parent], ref)
			}
		}
	}
	return duplicates, errors.Join(failed, c.register(ctx, children, where, byRef))
}

// registerAgain registers existing jobs that wait with their parents: their first enqueue may
// have been interrupted before that.
func (c *Client) registerAgain(ctx context.Context, ds []duplicate, results []Result) error {
	children := map[string][]store.Ref{}
	byRef := map[store.Ref]*Result{}
	var parents []string
	for _, d := range ds {
		j := results[d.p.index].Job
		if j == nil || j.Status != Waiting {
			continue
		}
		ref := store.Ref{Queue: d.queue, ID: j.ID}
		byRef[ref] = &results[d.p.index]
		for _, parent := range j.After {
			children[parent] = append(children[parent], ref)
			parents = append(parents, parent)
		}
	}
	if len(children) == 0 {
		return nil
	}
	where, err := c.locate(ctx, unique(parents))
	if err != nil {
		return fmt.Errorf("look up parents: %w", err)
	}
	maps.DeleteFunc(children, func(parent string, _ []store.Ref) bool { return where[parent] == "" })
	return c.register(ctx, children, where, byRef)
}

// register registers the children with their parents, and reads the jobs again that were
// released or cancelled at once.
func (c *Client) register(ctx context.Context, children map[string][]store.Ref, where map[string]string, results map[store.Ref]*Result) error {
	var mu sync.Mutex
	changed := map[string][]string{} // queue → ids
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	slots := make(chan struct{}, registerAtOnce)
	for parent, refs := range children {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			ended, err := store.Register(ctx, c.rdb, store.Ref{Queue: where[parent], ID: parent}, refs)
			if err != nil {
				cancel(err) // the first one: the others end
			}
			if ended {
				mu.Lock()
				defer mu.Unlock()
				for _, ref := range refs {
					changed[ref.Queue] = append(changed[ref.Queue], ref.ID)
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for queue, ids := range changed {
		for chunk := range slices.Chunk(unique(ids), recordsAtOnce) {
			found, err := c.readAll(ctx, []string{queue}, chunk)
			if err != nil {
				return err
			}
			for _, j := range found {
				if r := results[store.Ref{Queue: queue, ID: j.ID}]; r != nil {
					j.Duplicate = r.Job.Duplicate
					r.Job = j
				}
			}
		}
	}
	return nil
}

// ownersOfParents reads the owners of the parents that jobs with [Spec.OwnParents] name. A parent that does not exist is
// looked for, too, so that the time which that takes tells nothing.
func (c *Client) ownersOfParents(ctx context.Context, ps []*prepared, where map[string]string) (map[string]string, error) {
	var parents []string
	for _, p := range ps {
		if p.ownParents {
			parents = append(parents, p.job.After...)
		}
	}
	owners := map[string]string{}
	for ids := range slices.Chunk(unique(parents), recordsAtOnce) {
		queues := make([]string, 0, 1)
		for _, id := range ids {
			queues = append(queues, cmp.Or(where[id], ps[0].queue))
		}
		found, err := c.readAll(ctx, unique(queues), ids)
		if err != nil {
			return nil, err
		}
		for _, j := range found {
			owners[j.ID] = j.Owner
		}
	}
	return owners, nil
}

func unknownParents(p *prepared, where, owners map[string]string) error {
	var errs fieldErrors
	for _, id := range p.job.After {
		if where[id] == "" || p.ownParents && owners[id] != p.job.Owner {
			errs.add("after", "job %q not found; enqueue parents first", clip(id))
		}
	}
	return errs.err()
}

// locate returns the queue of each id that exists.
func (c *Client) locate(ctx context.Context, ids []string) (map[string]string, error) {
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return nil, err
	}
	return store.Locate(ctx, c.rdb, queues, ids)
}
