package jobs_test

import (
	"context"

	"github.com/tidegate/tidegate/jobs"
)

// enqueueMany accepts n jobs of equal options.
func (b *bench) enqueueMany(n int, opts ...jobs.Option) []*jobs.Job {
	b.t.Helper()
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i, opts...)
	}
	results, err := b.EnqueueMany(context.Background(), specs)
	b.must(err)
	out := make([]*jobs.Job, n)
	for i, r := range results {
		b.must(r.Err)
		out[i] = r.Job
	}
	return out
}
