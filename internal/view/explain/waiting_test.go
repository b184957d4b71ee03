package explain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

func TestWaiting(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 30, 48, 0, time.FixedZone("here", 2*3600))
	in := func(d time.Duration) time.Time { return now.Add(d).UTC() }
	at := func(d time.Duration) *time.Time { u := in(d); return &u }
	open := breaker.Status{Name: "deviantart", State: breaker.Open, Cause: breaker.CauseThreshold, OpenUntilRedis: in(4*time.Minute + 12*time.Second)}
	tripped := breaker.Status{Name: "deviantart", State: breaker.Open, Cause: breaker.CauseManual, TrippedBy: "ops@host", Reason: "maintenance", OpenUntilRedis: in(9 * time.Minute)}
	untilReset := breaker.Status{Name: "deviantart", State: breaker.Open, Cause: breaker.CauseManual, UntilReset: true, TrippedBy: "ops@host"}
	probing := breaker.Status{Name: "deviantart", State: breaker.HalfOpen, ProbeBy: "host:7", ProbeUntil: in(time.Second)}
	lapsed := breaker.Status{Name: "deviantart", State: breaker.HalfOpen, ProbeBy: "host:7", ProbeUntil: in(-time.Second)}
	away := breaker.Status{State: breaker.Open, Cause: breaker.CauseCredentials, NoCredentials: true, OpenedAt: in(-28*time.Minute - 18*time.Second), OpenUntilRedis: in(4*time.Minute + 12*time.Second)}
	denied := breaker.Status{Name: "deviantart", State: breaker.Open, Cause: breaker.CauseCredentials, OpenedAt: in(-28*time.Minute - 18*time.Second), OpenUntilRedis: in(4*time.Minute + 12*time.Second)}
	three := &jobs.RetryPolicy{MaxRetries: 3}

	for _, row := range []struct {
		name      string
		job       jobs.Job
		breaker   breaker.Status
		key       *breaker.Status
		deferring *breaker.Status
		unreached *jobs.UnreachableInfo
		seen      time.Duration // ago; -1: never
		want      Waiting
	}{{
		name: "breaker open", breaker: open,
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "deferred by the open breaker to the next whole second", breaker: open,
		job:  jobs.Job{AvailableAt: in(252*time.Second + 900*time.Millisecond), Reason: "breaker deviantart open", ReasonCode: "breaker_open deviantart"},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "scheduled for after the opening", breaker: open,
		job:  jobs.Job{AvailableAt: in(2 * time.Hour)},
		want: Waiting{Reason: Scheduled, Text: "scheduled: starts in 2h, at 16:30:48", Until: at(2 * time.Hour)},
	}, {
		name: "scheduled, but the breaker holds it longer", breaker: open,
		job:  jobs.Job{AvailableAt: in(time.Minute)},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "tripped", breaker: tripped,
		want: Waiting{Reason: BreakerTripped, Text: "opened by hand by ops@host (maintenance); deviantart reopens in 9m, at 14:39:48", Until: at(9 * time.Minute), Breaker: "deviantart"},
	}, {
		name: "tripped until reset", breaker: untilReset,
		job:  jobs.Job{AvailableAt: in(time.Hour)},
		want: Waiting{Reason: BreakerTripped, Text: "opened by hand by ops@host; jobs of deviantart wait until: tidegate breaker reset deviantart", Breaker: "deviantart"},
	}, {
		name: "probe under way", breaker: probing,
		want: Waiting{Reason: BreakerProbing, Text: "testing recovery of deviantart: one probe is under way", Breaker: "deviantart"},
	}, {
		name: "probe lost", breaker: lapsed,
		want: Waiting{Reason: BreakerProbing, Text: "testing recovery of deviantart: the next call is the probe", Breaker: "deviantart"},
	}, {
		name: "scheduled while probing", breaker: probing,
		job:  jobs.Job{AvailableAt: in(time.Minute)},
		want: Waiting{Reason: Scheduled, Text: "scheduled: starts in 1m, at 14:31:48", Until: at(time.Minute)},
	}, {
		name: "deferred by a breaker that has closed since",
		job:  jobs.Job{AvailableAt: in(5 * time.Second), Reason: "breaker deviantart open", ReasonCode: "breaker_open deviantart", RescheduleCount: 1},
		want: Waiting{Reason: Rescheduled, Text: "deferred by the breaker, which has closed since: starts in 5s, at 14:30:53", Until: at(5 * time.Second)},
	}, {
		name: "rescheduled by its handler",
		job:  jobs.Job{AvailableAt: in(50 * time.Second), Reason: "rescheduled by its handler", RescheduleCount: 2},
		want: Waiting{Reason: Rescheduled, Text: "rescheduled by its handler: starts in 50s, at 14:31:38", Until: at(50 * time.Second)},
	}, {
		name: "retry",
		job:  jobs.Job{Status: jobs.RetryPending, NextRetryAt: at(8 * time.Second), Attempt: 2, Retry: three, Reason: "retry 2 of 3 after timeout"},
		want: Waiting{Reason: Retry, Text: "retry 2 of 3 in 8s, at 14:30:56", Until: at(8 * time.Second)},
	}, {
		name: "retry by the policy of its destination",
		job:  jobs.Job{Status: jobs.RetryPending, NextRetryAt: at(8 * time.Second), Attempt: 2, Reason: "retry 2 of 3 after timeout", ReasonCode: "retry 2 3 timeout"},
		want: Waiting{Reason: Retry, Text: "retry 2 of 3 in 8s, at 14:30:56", Until: at(8 * time.Second)},
	}, {
		name: "retry held by the breaker", breaker: open,
		job:  jobs.Job{Status: jobs.RetryPending, NextRetryAt: at(8 * time.Second), Attempt: 2, Retry: three},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "next in line",
		want: Waiting{Reason: Queued, Text: "in line for a free worker"},
	}, {
		name: "never a worker", seen: -1,
		want: Waiting{Reason: NoWorker, Text: "no worker has served deviantart yet; start one with: tidegate worker"},
	}, {
		name: "worker gone", seen: 3 * time.Minute,
		want: Waiting{Reason: NoWorker, Text: "no worker has served deviantart for 3m; start one with: tidegate worker"},
	}, {
		name: "breaker open and worker gone", breaker: open, seen: 3 * time.Minute,
		want: Waiting{
			Reason: BreakerOpen, Until: at(252 * time.Second), Breaker: "deviantart",
			Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00; but no worker has served deviantart for 3m: start one with: tidegate worker",
		},
	}, {
		name: "held by its key", key: &breaker.Status{State: breaker.Open, OpenUntilRedis: in(time.Minute)},
		job:  jobs.Job{Key: "alice", AvailableAt: in(time.Minute)},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart/alice reopens in 1m, at 14:31:48", Until: at(time.Minute), Breaker: "deviantart/alice"},
	}, {
		name: "held by its key until it is reset", key: &breaker.Status{State: breaker.Open, Cause: breaker.CauseManual, UntilReset: true, TrippedBy: "ops@host"},
		job:  jobs.Job{Key: "alice"},
		want: Waiting{Reason: BreakerTripped, Text: "opened by hand by ops@host; jobs of deviantart/alice wait until: tidegate breaker reset deviantart/alice", Breaker: "deviantart/alice"},
	}, {
		name: "token refused", breaker: denied,
		want: Waiting{Reason: Credentials, Text: "token refused since 14:02; one call of deviantart tries it in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "token server away", breaker: away,
		want: Waiting{Reason: Credentials, Text: "token server unreachable since 14:02; one call of deviantart tries it in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "held because the key's token was refused, which the next call tries",
		key:  &breaker.Status{State: breaker.HalfOpen, Cause: breaker.CauseCredentials, OpenedAt: in(-36 * time.Hour), Reason: "invalid_grant"},
		job:  jobs.Job{Key: "alice"},
		want: Waiting{Reason: Credentials, Text: "token refused since 2026-11-20 02:30 (invalid_grant); the next call of deviantart/alice tries it", Breaker: "deviantart/alice"},
	}, {
		name: "its own call was refused with the key's token", deferring: &denied,
		job:  jobs.Job{Key: "alice", AvailableAt: in(253 * time.Second), ReasonCode: "breaker_open deviantart/alice", Reason: "breaker deviantart/alice open"},
		want: Waiting{Reason: Credentials, Text: "token refused since 14:02; one call of deviantart/alice tries it in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart/alice"},
	}, {
		name: "deferred by its key, as those that the key holds", deferring: &breaker.Status{State: breaker.Open, OpenUntilRedis: in(58 * time.Second)},
		job:  jobs.Job{Key: "alice", AvailableAt: in(59 * time.Second), ReasonCode: "breaker_open deviantart/alice", Reason: "breaker deviantart/alice open"},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart/alice reopens in 58s, at 14:31:46", Until: at(58 * time.Second), Breaker: "deviantart/alice"},
	}, {
		name: "refused with a token that was renewed during the call",
		job:  jobs.Job{AvailableAt: in(time.Second), ReasonCode: "credentials deviantart", Reason: "token refused by deviantart"},
		want: Waiting{Reason: Credentials, Text: "token refused by deviantart: starts in 1s, at 14:30:49", Until: at(time.Second)},
	}, {
		name: "held by its key, which is probed", key: &probing,
		job:  jobs.Job{Key: "alice"},
		want: Waiting{Reason: BreakerProbing, Text: "testing recovery of deviantart/alice: one probe is under way", Breaker: "deviantart/alice"},
	}, {
		name: "held by its key, and by the destination all the same", breaker: open, key: &breaker.Status{State: breaker.Open, OpenUntilRedis: in(time.Minute)},
		job:  jobs.Job{Key: "alice", AvailableAt: in(time.Minute)},
		want: Waiting{Reason: BreakerOpen, Text: "rate limit reached; deviantart reopens in 4m12s, at 14:35:00", Until: at(252 * time.Second), Breaker: "deviantart"},
	}, {
		name: "among the jobs of a key that has opened", key: &breaker.Status{},
		job:  jobs.Job{Key: "alice", AvailableAt: in(time.Second)},
		want: Waiting{Reason: Queued, Text: "waits for the earlier jobs of key alice"},
	}, {
		name: "worker silent for a moment", seen: 30 * time.Second,
		want: Waiting{Reason: Queued, Text: "in line for a free worker"},
	}, {
		name: "the API refuses it alone",
		job:  jobs.Job{AvailableAt: in(time.Second), Reason: "refused 4 times while 812 other calls were accepted", ReasonCode: "refused_alone 4 812", RescheduleCount: 4},
		want: Waiting{Reason: RefusedAlone, Text: "the API refuses this job, not others: refused 4 times while 812 other calls were accepted; tries again in 1s, at 14:30:49", Until: at(time.Second)},
	}, {
		name: "its call did not leave",
		job:  jobs.Job{AvailableAt: in(time.Second), Reason: "its worker did not reach deviantart", ReasonCode: "unreachable deviantart"},
		want: Waiting{Reason: Unreachable, Text: "its worker did not reach deviantart: starts in 1s, at 14:30:49", Until: at(time.Second)},
	}, {
		name: "its call did not leave, nor does any", unreached: &jobs.UnreachableInfo{Since: in(-time.Minute), Problem: "connection refused"},
		job:  jobs.Job{AvailableAt: in(time.Second), Reason: "its worker did not reach deviantart", ReasonCode: "unreachable deviantart"},
		want: Waiting{Reason: Unreachable, Text: "no worker reaches deviantart since 14:29:48: connection refused; tries again in 1s, at 14:30:49", Until: at(time.Second)},
	}, {
		name: "next in line, and no worker reaches it", unreached: &jobs.UnreachableInfo{Since: in(-time.Minute), Problem: "connection refused"},
		want: Waiting{Reason: Unreachable, Text: "no worker reaches deviantart since 14:29:48: connection refused"},
	}, {
		name: "paused", seen: -1,
		job:  jobs.Job{Status: jobs.Paused, Reason: "paused by ann (wrong file)"},
		want: Waiting{Reason: Paused, Text: "paused by ann (wrong file) until it is resumed"},
	}, {
		name: "parents", seen: -1,
		job:  jobs.Job{Status: jobs.Waiting, After: []string{"a", "b"}},
		want: Waiting{Reason: Parents, Text: "waiting for its parents to complete: a, b"},
	}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			job := row.job
			job.Destination = "deviantart"
			if job.Status == "" {
				job.Status = jobs.Pending
			}
			if row.key != nil {
				job.ReasonCode = "held deviantart/alice"
			}
			f := facts{now: now, breaker: row.breaker, key: row.key, deferring: row.deferring, unreached: row.unreached}
			if row.seen >= 0 {
				f.seen, f.served = now.Add(-row.seen), row.seen <= 30*time.Second
			}
			if diff := cmp.Diff(&row.want, f.waiting(&job), cmpopts.IgnoreUnexported(Waiting{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A page shows beside Brief until when the job waits, and counts the time down itself.
func TestBrief(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 14, 30, 0, 0, time.UTC)
	open := func(cause string) breaker.Status {
		return breaker.Status{Name: "shop", State: breaker.Open, Cause: cause, IncidentCause: cause, OpenedAt: now.Add(-time.Minute), OpenUntilRedis: now.Add(time.Minute)}
	}
	byHand := breaker.Status{Name: "shop", State: breaker.Open, Cause: breaker.CauseManual, UntilReset: true, TrippedBy: "ann"}
	soon := now.Add(time.Second)
	for _, row := range []struct {
		breaker  breaker.Status
		job      jobs.Job
		unserved bool
		want     string
	}{
		{open(breaker.CauseCredentials), jobs.Job{}, false, "token refused since 14:29; one call of shop tries it in"},
		{open(breaker.CauseOutage), jobs.Job{}, true, "the last calls all failed; shop reopens in"},
		{open(breaker.CauseHint), jobs.Job{}, false, "rate limit reached; shop reopens in"},
		{byHand, jobs.Job{}, false, "opened by hand by ann; stays open until it is reset"},
		{breaker.Status{}, jobs.Job{AvailableAt: soon}, false, "scheduled: starts in"},
		{breaker.Status{}, jobs.Job{AvailableAt: soon, Reason: "token refused by shop", ReasonCode: "credentials shop"}, false, "token refused by shop: starts in"},
		{breaker.Status{}, jobs.Job{AvailableAt: soon, Reason: "refused 4 times", ReasonCode: "refused_alone 4 812"}, false, "the API refuses this job, not others: refused 4 times; tries again in"},
		{breaker.Status{}, jobs.Job{Status: jobs.RetryPending, NextRetryAt: &soon, Attempt: 2, Retry: &jobs.RetryPolicy{MaxRetries: 3}}, true, "retry 2 of 3 in"},
		{breaker.Status{}, jobs.Job{Status: jobs.Waiting, After: []string{"a", "b"}}, false, "waiting for 2 parents"},
		{breaker.Status{}, jobs.Job{}, true, "no worker has served shop yet"},
		{breaker.Status{}, jobs.Job{}, false, "in line for a free worker"},
		{breaker.Status{SlowStart: 2}, jobs.Job{}, false, "in line; slow start: 2 in flight at most"},
	} {
		job := row.job
		job.Destination = "shop"
		if job.Status == "" {
			job.Status = jobs.Pending
		}
		if got := (facts{now: now, breaker: row.breaker, served: !row.unserved}).waiting(&job).Brief(); got != row.want {
			t.Errorf("%q, want %q", got, row.want)
		}
	}
}
