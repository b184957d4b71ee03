package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// generations is how far a graph looks to either side.
	generations = 2
	// relativesAtOnce is how many relatives are read at the same time.
	relativesAtOnce = 8
	// mostRelatives is how many jobs it shows on either side.
	mostRelatives = 16
)

// Graph is the family of a job: two generations of parents and of children, up to 16 jobs on either side.
type Graph struct {
	Jobs  []Relative `json:"jobs" doc:"The job itself, its parents and theirs, its children and theirs: up to 16 on either side."`
	Edges []Edge     `json:"edges" doc:"Who waits for whom."`
}

// Relative is a job of a Graph.
type Relative struct {
	ID          string      `json:"id" doc:"The job's id." example:"post-7"`
	Generation  int         `json:"generation" doc:"0 is the job itself, -1 a parent, 1 a child." example:"-1"`
	Destination string      `json:"destination" doc:"The API that it is published to; empty if the job is no longer kept." example:"deviantart"`
	Status      jobs.Status `json:"status" doc:"Where it stands; empty if the job is no longer kept." example:"retry_pending"`
	Attempt     int         `json:"attempt" doc:"How many retries were made." example:"1"`
	NextRetryAt *time.Time  `json:"next_retry_at" doc:"When the next retry is due, in retry_pending: the children wait until then at least." example:"2030-01-31T14:35:05Z"`
}

// Edge says that a job waits for another one.
type Edge struct {
	Parent string `json:"parent" doc:"The job that has to complete." example:"post-6"`
	Child  string `json:"child" doc:"The job that waits for it." example:"post-7"`
}

// relatives collects the ancestors and descendants of a job.
type relatives struct {
	client *jobs.Client
	caller access.Identity
	places map[string]int // by id, in graph.Jobs
	graph  Graph
}

// Graph reads the family of a job. Jobs that the caller of ctx may not see are left out. An unknown job is
// jobs.ErrNotFound.
func (s *System) Graph(ctx context.Context, id string) (Graph, error) {
	job, err := s.client.Get(ctx, id)
	if err != nil {
		return Graph{}, err
	}
	return s.GraphOf(ctx, job)
}

// GraphOf is Graph of a job that has been read.
func (s *System) GraphOf(ctx context.Context, job *jobs.Job) (Graph, error) {
	caller, _ := access.From(ctx)
	r := &relatives{client: s.client, caller: caller, places: map[string]int{}, graph: Graph{Jobs: []Relative{}, Edges: []Edge{}}}
	r.add(job.ID, 0).take(job)
	for _, step := range []int{-1, 1} {
		if err := r.walk(ctx, job, step); err != nil {
			return Graph{}, err
		}
	}
	g := r.graph
	if caller.Confined() { // a job that was not found may be another tenant's
		gone := func(id string) bool { return r.graph.Jobs[r.places[id]].Status == "" }
		g.Edges = slices.DeleteFunc(slices.Clone(g.Edges), func(e Edge) bool { return gone(e.Parent) || gone(e.Child) })
		g.Jobs = slices.DeleteFunc(slices.Clone(g.Jobs), func(j Relative) bool { return gone(j.ID) })
	}
	return g, nil
}

func (r *relatives) add(id string, generation int) *Relative {
	r.places[id] = len(r.graph.Jobs)
	r.graph.Jobs = append(r.graph.Jobs, Relative{ID: id, Generation: generation})
	return &r.graph.Jobs[len(r.graph.Jobs)-1]
}

func (r *Relative) take(j *jobs.Job) {
	r.Destination, r.Status, r.Attempt, r.NextRetryAt = j.Destination, j.Status, j.Attempt, j.NextRetryAt
}

// walk goes to the parents (step -1) or children (step 1), generation after generation.
func (r *relatives) walk(ctx context.Context, from *jobs.Job, step int) error {
	layer := []*jobs.Job{from}
	left := mostRelatives
	for depth := 1; depth <= generations && len(layer) > 0; depth++ {
		var ids []string
		for _, j := range layer {
			next := j.After
			if step > 0 {
				var err error
				if next, err = r.client.Children(ctx, j.ID); err != nil && !errors.Is(err, jobs.ErrNotFound) {
					return fmt.Errorf("read the dependencies of %s: %w", j.ID, err)
				}
			}
			for _, id := range next {
				if _, known := r.places[id]; !known {
					if left == 0 {
						continue
					}
					left--
					r.add(id, depth*step)
					ids = append(ids, id)
				}
				e := Edge{Parent: id, Child: j.ID}
				if step > 0 {
					e = Edge{Parent: j.ID, Child: id}
				}
				r.graph.Edges = append(r.graph.Edges, e)
			}
		}
		var err error
		if layer, err = r.get(ctx, ids); err != nil {
			return err
		}
	}
	return nil
}

// get reads jobs; deleted ones, and jobs out of the caller's bounds, are left out.
func (r *relatives) get(ctx context.Context, ids []string) ([]*jobs.Job, error) {
	found := make([]*jobs.Job, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(relativesAtOnce)
	for i, id := range ids {
		g.Go(func() error {
			j, err := r.client.Get(ctx, id)
			if errors.Is(err, jobs.ErrNotFound) || err == nil && !r.caller.May(j.Destination, j.Key) {
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
			r.graph.Jobs[r.places[j.ID]].take(j)
			out = append(out, j)
		}
	}
	return out, nil
}
