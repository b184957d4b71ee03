package publisher_test

import (
	"context"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

const (
	forever = time.Duration(math.MaxInt64)
	century = 100 * 365 * 24 * time.Hour
)

// A reschedule has no upper limit: one by more than a timestamp holds is one by 100
// years, not one by nothing.
func TestRescheduleByAnyTimeIsKept(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"of Reschedule":    jobs.Reschedule(forever, jobs.ExtendExpiration(forever)),
		"made by hand":     &jobs.RescheduleError{Delay: forever, ExtendExpiration: forever},
		"by just less":     jobs.Reschedule(forever-time.Millisecond/2, jobs.ExtendExpiration(forever)),
		"by 292 years":     jobs.Reschedule(292*365*24*time.Hour, jobs.ExtendExpiration(forever)),
		"by exactly a 100": jobs.Reschedule(century, jobs.ExtendExpiration(century)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			var calls tally
			stop := b.run(b.options(), func(_ context.Context, job *jobs.Job) error {
				calls.add(job.ID)
				return err
			}, publisher.Concurrency(1))
			began := b.redisNow().Truncate(time.Millisecond)
			j := b.enqueue(jobs.TTL(time.Hour))
			b.want(publisher.Rescheduled)
			// Another job, behind it, shows that the first is not run again meanwhile.
			b.enqueue(jobs.TTL(time.Hour))
			b.want(publisher.Rescheduled)
			stop()
			if n := calls.of(j.ID); n != 1 {
				t.Errorf("%d calls, want 1", n)
			}
			got := b.get(j.ID)
			if at := began.Add(century); got.Status != jobs.Pending || got.AvailableAt.Before(at) || got.AvailableAt.After(at.Add(time.Minute)) {
				t.Errorf("%s, available at %s, want pending at %s", got.Status, got.AvailableAt, at)
			}
			if want := began.Add(century + time.Hour); got.ExpiresAt == nil || got.ExpiresAt.Before(want) || got.ExpiresAt.After(want.Add(time.Minute)) {
				t.Errorf("expires at %v, want %s", got.ExpiresAt, want)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Error(err)
			}
		})
	}
}

// An expiry that is extended again and again ends with what RFC 3339 can express.
func TestExpiryIsExtendedToTheYear9999AtMost(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	b.run(b.options(), func(context.Context, *jobs.Job) error {
		return jobs.Reschedule(0, jobs.ExtendExpiration(forever))
	})
	j := b.enqueue(jobs.ExpiresAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)), jobs.MaxReschedules(3))
	got := b.waitStatus(j.ID, jobs.Failed)
	if got.RescheduleCount != 3 || got.ExpiresAt == nil || got.ExpiresAt.Year() != 9999 {
		t.Errorf("after %d reschedules it expires at %v, want the end of 9999", got.RescheduleCount, got.ExpiresAt)
	}
	if _, err := json.Marshal(got); err != nil {
		t.Error(err)
	}
}

// "No timeout" as people write it, in every place that takes one.
func TestOptionsOfAnyLengthWork(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	o := b.options()
	o.ShutdownTimeout, o.Retention, o.RetentionFailed, o.RecoverSpread = forever, forever, forever, forever
	started, end := make(chan struct{}), make(chan struct{})
	stop := b.run(o, func(ctx context.Context, _ *jobs.Job) error {
		close(started)
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, publisher.Timeout(forever), publisher.Retention(forever), publisher.Breaker(breaker.Options{
		Cooldown: forever, MaxCooldown: forever,
	}))
	j := b.enqueue()
	signal(t, "the call has started", started)
	time.AfterFunc(100*time.Millisecond, func() { close(end) })
	stop() // waits for the call, which is not cut
	b.want(publisher.Completed)
	if got := b.get(j.ID); got.Status != jobs.Completed {
		t.Errorf("it is %s", got.Status)
	}
}
