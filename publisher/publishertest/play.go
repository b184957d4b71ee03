package publishertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Life is the result of Play.
type Life struct {
	// Calls are the results of the calls, in order. Their At is on Play's clock.
	Calls []Result
	// Job is the job at the end. Its Status is final unless the maximum of calls was reached
	// or the context ended.
	Job *jobs.Job

	start time.Time
}

// Play calls h when the job becomes available, and again after each reschedule and retry,
// until the job has finished or was accepted, that many calls were made, or ctx has ended. The clock jumps
// from one AvailableAt of the job to the next, retries have no jitter, and calls take no time
// on it. A job that is not called before its ExpiresAt expires.
//
// Options are as for Publish, and so are panics.
func Play(ctx context.Context, h publisher.Handler, job *jobs.Job, calls int, opts ...publisher.HandleOption) Life {
	check("play", job)
	if calls < 1 {
		panic(fmt.Sprintf("publishertest: play: calls is %d; give how many to make at most", calls))
	}
	ctx, end := withClient(ctx)
	defer end()
	life := Life{Job: job.Clone(), start: job.CreatedAt}
	now := latest(job.CreatedAt, job.AvailableAt)
	for !life.Job.Status.Final() {
		now = latest(now, life.Job.AvailableAt)
		if life.Job.ExpiredAt(now) || cancelled(ctx) {
			life.Job = publishAt(ctx, now, h, life.Job, opts).Job // without a call
			break
		}
		if len(life.Calls) == calls || ctx.Err() != nil {
			break
		}
		r := publishAt(ctx, now, h, life.Job, opts)
		life.Calls = append(life.Calls, r)
		life.Job = r.Job.Clone()
		if r.Result == publisher.Accepted {
			break // its API reports the result
		}
	}
	return life
}

// String has a line for each call, with the time since the job was created, and a line for the
// final state.
func (l Life) String() string {
	var b strings.Builder
	for i, c := range l.Calls {
		fmt.Fprintf(&b, "+%s call %d: %s\n", c.At.Sub(l.start), i+1, c)
	}
	if n := len(l.Calls); n > 0 && l.Calls[n-1].Job.Status.Final() {
		return b.String()
	}
	at := l.Job.AvailableAt
	if l.Job.EndedAt != nil {
		at = *l.Job.EndedAt
	}
	fmt.Fprintf(&b, "+%s %s\n", at.Sub(l.start), l.Job.Status)
	return b.String()
}
