package alerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/lease"
	"github.com/tidegate/tidegate/jobs"
)

// giveUpAfter is how long an alert is tried to be delivered.
const giveUpAfter = 24 * time.Hour

// Publish delivers one alert. It makes an Alerts the handler of [Destination].
//
// An API that is rate limited opens its breaker; whatever else goes wrong puts the job
// off, by a second at first and by a minute at most, until it is a day old.
func (a *Alerts) Publish(ctx context.Context, job *jobs.Job) error {
	var what alertJob
	if err := json.Unmarshal(job.Payload, &what); err != nil {
		return jobs.Discard(fmt.Errorf("alerts: read the job: %w", err))
	}
	if !a.canTell(job.Key) {
		return a.leave(ctx, job)
	}
	if job.Key == toSlack {
		// A Slack that hangs leaves room for PagerDuty.
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
		default:
			return jobs.Reschedule(time.Second)
		}
	}
	// From here on this job does not stand in for others: what they know it may not read.
	if err := a.store.unclaim(ctx, job.ID, a.claims(job, what)...); err != nil {
		return jobs.Reschedule(time.Second)
	}
	err := a.deliver(ctx, job, what)
	if err == nil {
		return nil
	}
	failure, outside := errors.AsType[*tellError](err)
	later, putOff := errors.AsType[*jobs.RescheduleError](err)
	hint, isLimited := limited(err)
	switch {
	case errors.Is(err, errLocked):
		return a.standIn(ctx, job, what, claimWaiting, time.Second)
	case errors.Is(ctx.Err(), context.Canceled):
		return err // the worker is shutting down: the job comes back by itself
	case ctx.Err() != nil:
		return jobs.Reschedule(time.Second)
	case putOff:
		return later
	case isFinal(err):
		return err
	case !outside:
		if a.logOnce("redis") {
			a.log.WarnContext(ctx, "an alert could not be made yet; it is tried again", "job", job.ID, "error", err)
		}
		return jobs.Reschedule(time.Second)
	}
	pause := a.troubled(ctx, job, failure)
	switch {
	case isLimited:
		return jobs.RateLimited(hint)
	case a.tooOld(ctx, job):
		a.noteUndelivered(ctx, job, failure)
		a.giveUp(ctx, job, what)
		return jobs.Discard(fmt.Errorf("given up after %s: %w", giveUpAfter, failure))
	}
	return a.standIn(ctx, job, what, claimRetrying, pause)
}

// A job that is put off stands in for the others of its subject, because it waits for
// its turn or because somebody could not be told.
const (
	claimWaiting = iota
	claimRetrying
)

// claims are the keys by which a job stands in for others.
func (a *Alerts) claims(job *jobs.Job, what alertJob) []string {
	return []string{key("waiting", job.Key, what.Subject), key("retrying", job.Key, what.Subject)}
}

// standIn puts a job off, unless another one of its subject is put off in the same way:
// that will do all that there is to do.
func (a *Alerts) standIn(ctx context.Context, job *jobs.Job, what alertJob, claim int, pause time.Duration) error {
	if what.Kind != kindIncident {
		return jobs.Reschedule(pause)
	}
	// By the time the key ends, a job that has died is missed.
	first, err := lease.Acquire(ctx, a.rdb, a.claims(job, what)[claim], job.ID, pause+time.Minute)
	if err == nil && !first {
		return nil
	}
	return jobs.Reschedule(pause)
}

// canTell says whether this worker is configured to tell them.
func (a *Alerts) canTell(to string) bool {
	if to == toPager {
		return a.pager != nil
	}
	return a.o.slack()
}

// leave leaves a job to workers that are configured otherwise.
func (a *Alerts) leave(ctx context.Context, job *jobs.Job) error {
	if a.tooOld(ctx, job) {
		return jobs.Discard(fmt.Errorf("alerts: no worker is configured to tell %s", nameOf(job.Key)))
	}
	if a.logOnce("cannot tell " + job.Key) {
		a.log.WarnContext(ctx, "an alert is left to other workers: this one is not configured to tell them", "to", nameOf(job.Key), "job", job.ID)
	}
	return jobs.Reschedule(time.Minute)
}

// giveUp lets nothing more be said of what could not be told, so that it is not in the
// way of what comes.
func (a *Alerts) giveUp(ctx context.Context, job *jobs.Job, what alertJob) {
	if what.Kind != kindIncident || strings.HasSuffix(what.Subject, allKeys) {
		return
	}
	done := told
	if job.Key == toPager {
		done = paged
	}
	now, err := a.now(ctx)
	if err == nil {
		_, err = change(ctx, a.store, key("subject", what.Subject), func(s *subject) (bool, error) {
			return s.giveUp(now.Add(-giveUpAfter), done), nil
		})
	}
	if err != nil {
		a.notKept(ctx, err)
	}
}

// isFinal says that no repetition would help.
func isFinal(err error) bool {
	e, ok := errors.AsType[*jobs.FailError](err)
	return ok && e.Permanent
}

// tooOld says that the alert is not worth being told any more.
func (a *Alerts) tooOld(ctx context.Context, job *jobs.Job) bool {
	now, err := a.now(ctx)
	// Pages are enqueued long before they are due.
	return err == nil && now.Sub(job.CreatedAt) > giveUpAfter+max(0, a.o.OpenTooLong)
}

func (a *Alerts) deliver(ctx context.Context, job *jobs.Job, what alertJob) error {
	switch {
	case what.Kind == kindNotice && what.Notice != nil:
		return a.deliverNotice(ctx, job, what.Notice)
	case what.Kind != kindIncident:
		return jobs.Discard(fmt.Errorf("alerts: unknown kind %q", what.Kind))
	case job.Key == toPager:
		return a.deliverPages(ctx, job, what)
	case strings.HasSuffix(what.Subject, allKeys):
		return a.deliverKeys(ctx, job, what)
	}
	return a.deliverIncidents(ctx, job, what)
}
