package dashboard

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// generations is how far the graph looks to either side.
	generations = 2
	// atOnce is how many relatives are read at the same time.
	atOnce = 8
	// mostRelatives is how many jobs it shows on either side.
	mostRelatives = 16
)

// relatives collects the ancestors or descendants of a job.
type relatives struct {
	d     *Dashboard
	seen  map[string]int // layer, 0 is the job's own
	jobs  map[string]*jobs.Job
	order []string
	edges [][2]string
}

// dependencies draws the parents and children of the job.
func (d *Dashboard) dependencies(ctx context.Context, p *jobPage) error {
	children, err := d.client.Children(ctx, p.ID)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("read the dependencies of %s: %w", p.ID, err)
	}
	if len(p.After) == 0 && len(children) == 0 {
		return nil
	}
	r := &relatives{d: d, seen: map[string]int{p.ID: 0}, jobs: map[string]*jobs.Job{p.ID: p.Job}, order: []string{p.ID}}
	if err := r.walk(ctx, p.Job, children, -1); err != nil {
		return err
	}
	if err := r.walk(ctx, p.Job, children, 1); err != nil {
		return err
	}
	g := r.graph(p.ID)
	if p.Graph, err = g.SVG(); err != nil {
		return &broken{err}
	}
	return nil
}

// walk goes to the parents (step -1) or children (step 1), generation after generation.
func (r *relatives) walk(ctx context.Context, from *jobs.Job, children []string, step int) error {
	layer := []*jobs.Job{from}
	left := mostRelatives
	for depth := 1; depth <= generations && len(layer) > 0; depth++ {
		var ids []string
		for _, j := range layer {
			next := j.After
			if step > 0 {
				next = children
				if j != from {
					var err error
					if next, err = r.d.client.Children(ctx, j.ID); err != nil && !errors.Is(err, jobs.ErrNotFound) {
						return fmt.Errorf("read the dependencies of %s: %w", j.ID, err)
					}
				}
			}
			for _, id := range next {
				edge := [2]string{id, j.ID}
				if step > 0 {
					edge = [2]string{j.ID, id}
				}
				if _, ok := r.seen[id]; ok {
					r.edges = append(r.edges, edge)
					continue
				}
				if left == 0 {
					continue
				}
				left--
				r.seen[id] = depth * step
				r.order = append(r.order, id)
				r.edges = append(r.edges, edge)
				ids = append(ids, id)
			}
		}
		found, err := r.get(ctx, ids)
		if err != nil {
			return err
		}
		layer = found
	}
	return nil
}

// get reads jobs; deleted jobs are left out.
func (r *relatives) get(ctx context.Context, ids []string) ([]*jobs.Job, error) {
	found := make([]*jobs.Job, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, id := range ids {
		g.Go(func() error {
			j, err := r.d.client.Get(ctx, id)
			if errors.Is(err, jobs.ErrNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("read job %s: %w", id, err)
			}
			found[i] = j
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []*jobs.Job
	for _, j := range found {
		if j != nil {
			r.jobs[j.ID] = j
			out = append(out, j)
		}
	}
	return out, nil
}

func (r *relatives) graph(here string) chart.Graph {
	g := chart.Graph{Title: "Dependencies of this job", Edges: r.edges}
	first := 0
	for _, layer := range r.seen {
		first = min(first, layer)
	}
	for _, id := range r.order {
		n := chart.Node{ID: id, Layer: r.seen[id] - first, Text: id, Detail: "no longer kept", Class: "gone", Here: id == here}
		if j := r.jobs[id]; j != nil {
			b := ops.StatusWords(j.Status)
			n.Detail, n.Class = b.Text+" · "+j.Destination, b.Class
			if id != here {
				n.Link = "/jobs/" + id
			}
		}
		g.Nodes = append(g.Nodes, n)
	}
	return g
}
