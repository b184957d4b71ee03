package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/redisconn/embedded"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

type demoCmd struct {
	Jobs int    `default:"150" placeholder:"N" help:"Jobs to publish. Default: ${default}."`
	Fake string `default:"50/10s" placeholder:"50/10s" help:"Calls that the fake API accepts in a window. Default: ${default}."`
}

// summaryFor bounds reading what the summary says.
const summaryFor = 10 * time.Second

// Run does what "tidegate dev --fake" does, with jobs of its own, and ends when all are published, or when ctx ends.
// Nothing of the environment matters.
func (c *demoCmd) Run(ctx context.Context, p *Process) (err error) {
	if c.Jobs < 1 || c.Jobs > 10_000 {
		return inputErrorf("--jobs: must be from 1 to 10000, is %d", c.Jobs)
	}
	p = p.sharedOutput()
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	d := &dev{cmd: &devCmd{Fake: c.Fake}, environ: []string{"REDIS_URL=" + server.URL()}, embedded: true, closers: []func() error{server.Close}}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.prepare(ctx, p); err != nil {
		return err
	}
	s, err := p.connect(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer s.close()
	if err := p.write(fmt.Appendf(nil, `Tidegate demo: %d jobs for a fake API that accepts %s and then says 429. Redis, the API and a worker are in this
process. The dashboard is at http://%s. Ctrl-C stops it.

`, c.Jobs, c.Fake, d.listen.Addr())); err != nil {
		return err
	}
	parts, stop := context.WithCancel(ctx)
	defer stop()
	playing, over := context.WithCancel(parts)
	served := make(chan error, 1)
	go func() {
		defer over()
		served <- d.serve(parts, p)
	}()
	started := time.Now()
	err = c.play(playing, p, s)
	switch {
	case err == nil || ctx.Err() != nil:
		err = c.summarize(context.WithoutCancel(ctx), p, d, s, time.Since(started))
	case playing.Err() != nil:
		err = nil // served has the reason
	}
	stop()
	return errors.Join(err, <-served)
}

// play enqueues the jobs, and prints the progress until all are published.
func (c *demoCmd) play(ctx context.Context, p *Process, s *session) error {
	specs := make([]*jobs.Spec, c.Jobs)
	for i := range specs {
		specs[i] = jobs.New(fakeDestination, map[string]int{"picture": i + 1}, jobs.Batch(fakeDestination))
	}
	results, err := s.client.EnqueueMany(ctx, specs)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	published := 0
	_, err = s.client.WaitBatch(ctx, fakeDestination, func(b *jobs.BatchStatus) {
		if n := b.Counts[jobs.Completed]; n > published {
			published = n
			fmt.Fprintf(p.Stdout, "%s  published %d of %d\n", time.Now().Format(time.TimeOnly), n, c.Jobs)
		}
	})
	return err
}

// summarize prints a summary of the demo. The error says that a job was not accepted exactly once.
func (c *demoCmd) summarize(ctx context.Context, p *Process, d *dev, s *session, took time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, summaryFor)
	defer cancel()
	b, err := s.client.Batch(ctx, fakeDestination)
	if err != nil {
		return err
	}
	read, err := breaker.DefaultNamespace.ReadOne(ctx, s.rdb, breaker.Query{Incidents: breaker.All}, fakeDestination)
	if err != nil {
		return err
	}
	api, published, rows := fakeCounts(d.fake), b.Counts[jobs.Completed], newRows()
	var failed error
	checked := ""
	switch {
	case !b.Done:
		checked = ", stopped early"
	case api.Distinct == c.Jobs && api.Accepted == c.Jobs && published == c.Jobs:
		checked = ", each accepted by the API exactly once"
	default:
		failed = fmt.Errorf("demo: %d of %d jobs are published, and the API accepted %d of them in %d calls", published, c.Jobs, api.Distinct, api.Accepted)
	}
	rows.add("published", fmt.Sprintf("%d of %d jobs%s", published, c.Jobs, checked))
	rows.add("took", explain.Duration(took))
	rows.add("calls", fmt.Sprintf("%d, of which the API refused %d", api.Calls, api.Limited))
	rescheduled := 0
	for i, in := range read.Incidents {
		rescheduled += in.Rescheduled
		lasted := "still open"
		if !in.Ended.IsZero() {
			lasted = fmt.Sprintf("closed after %s, %s", explain.Duration(in.Ended.Sub(in.Started)), plural(in.Probes, "failed probe", "failed probes"))
		}
		rows.add(fmt.Sprintf("incident %d", i+1), fmt.Sprintf("%s; %s", plural(in.Wasted, "call was refused", "calls were refused"), lasted))
	}
	rows.add("rescheduled", fmt.Sprintf("%d jobs in flight, at the cost of no retry; the others stayed in the queue", rescheduled))
	return errors.Join(failed, p.write([]byte("\nSummary\n")), rows.print(p))
}
