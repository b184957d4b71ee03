package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/bench/rig"
	"github.com/tidegate/tidegate/jobs"
)

// rate is how fast jobs were enqueued in one way.
type rate struct {
	way    string
	each   []float64 // jobs a second, of each round
	median float64
}

const batchSize = 1000

// measureBatches enqueues the same jobs in each way, one way after the other in each
// round.
func measureBatches(ctx context.Context, s *stage, p plan, f *figures) error {
	specs := make([]*jobs.Spec, p.jobs)
	for i := range specs {
		specs[i] = jobs.New(destination, payload)
	}
	array := "[" + strings.TrimSuffix(strings.Repeat(line+",", batchSize), ",") + "]"
	arrays := func(connections int) func(context.Context) error {
		return func(ctx context.Context) error {
			var left atomic.Int64
			left.Store(int64(p.jobs / batchSize))
			group, ctx := errgroup.WithContext(ctx)
			for range connections {
				group.Go(func() error {
					var buf bytes.Buffer
					for left.Add(-1) >= 0 {
						if err := s.post(ctx, jsonType, strings.NewReader(array), &buf); err != nil {
							return err
						}
						if err := accepted(&buf, batchSize); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return group.Wait()
		}
	}
	lines := strings.Repeat(line+"\n", p.jobs)
	ways := []struct {
		name string
		do   func(context.Context) error
	}{
		{"Go client, `EnqueueMany` of all", func(ctx context.Context) error {
			results, err := s.client.EnqueueMany(ctx, specs)
			if err != nil {
				return err
			}
			for _, r := range results {
				if r.Err != nil {
					return r.Err
				}
			}
			return nil
		}},
		{"HTTP, lines, one request", func(ctx context.Context) error {
			var buf bytes.Buffer
			if err := s.post(ctx, linesType, strings.NewReader(lines), &buf); err != nil {
				return err
			}
			return accepted(&buf, p.jobs)
		}},
		{"HTTP, arrays of 1,000, one after the other", arrays(1)},
		{"HTTP, arrays of 1,000, 4 connections", arrays(4)},
	}
	f.batches = make([]rate, len(ways))
	for range p.rounds {
		for i, way := range ways {
			if err := s.fresh(ctx); err != nil {
				return err
			}
			started := time.Now()
			if err := way.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			f.batches[i].way = way.name
			f.batches[i].each = append(f.batches[i].each, float64(p.jobs)/time.Since(started).Seconds())
		}
	}
	for i := range f.batches {
		f.batches[i].median = rig.Median(f.batches[i].each)
	}
	return nil
}

// single is how jobs were enqueued one by one.
type single struct {
	way         string
	connections int
	perSecond   float64
	p50, p99    time.Duration
}

// measureSingles enqueues one by one, as fast as answers come.
func measureSingles(ctx context.Context, s *stage, p plan, f *figures) error {
	for _, connections := range []int{1, 16, 128} {
		for _, way := range []struct {
			name string
			do   func(context.Context, *bytes.Buffer) error
		}{
			{"Go client, `Enqueue`", func(ctx context.Context, _ *bytes.Buffer) error {
				_, err := s.client.Enqueue(ctx, jobs.New(destination, payload))
				return err
			}},
			{"HTTP", func(ctx context.Context, buf *bytes.Buffer) error {
				return s.post(ctx, jsonType, strings.NewReader(line), buf)
			}},
		} {
			if err := s.fresh(ctx); err != nil {
				return err
			}
			took, elapsed, err := load(ctx, connections, p.single, way.do)
			if err != nil {
				return fmt.Errorf("%s: %w", way.name, err)
			}
			f.singles = append(f.singles, single{
				way: way.name, connections: connections, perSecond: float64(len(took)) / elapsed.Seconds(),
				p50: took[len(took)/2], p99: took[len(took)*99/100],
			})
		}
	}
	return nil
}

// load calls do from so many goroutines for a while and returns how long each call
// took, sorted.
func load(ctx context.Context, goroutines int, length time.Duration, do func(context.Context, *bytes.Buffer) error) ([]time.Duration, time.Duration, error) {
	each := make([][]time.Duration, goroutines)
	started := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range goroutines {
		group.Go(func() error {
			var buf bytes.Buffer
			for time.Since(started) < length {
				began := time.Now()
				if err := do(ctx, &buf); err != nil {
					return err
				}
				each[i] = append(each[i], time.Since(began))
			}
			return nil
		})
	}
	err := group.Wait()
	elapsed := time.Since(started)
	took := slices.Concat(each...)
	slices.Sort(took)
	if err == nil && len(took) == 0 {
		err = fmt.Errorf("nothing was done in %v", length)
	}
	return took, elapsed, err
}
