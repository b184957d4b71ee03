package publishertest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

func TestPlayRetries(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second, MaxDelay: 30 * time.Second})))
	life := publishertest.Play(t.Context(), returns(errBoom), job, 100)
	want := `+0s call 1: retry in 10s (9s to 11s) after failure: boom
+10s call 2: retry in 20s (18s to 22s) after failure: boom
+30s call 3: retry in 30s (30s to 30s) after failure: boom
+1m0s call 4: failed: boom
`
	if got := life.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if life.Job.Status != jobs.Failed || life.Job.Attempt != 3 || job.Attempt != 0 {
		t.Errorf("in the end: %+v", life.Job)
	}
}

func TestPlayMaxReschedules(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.MaxReschedules(100)))
	life := publishertest.Play(t.Context(), returns(jobs.Reschedule(time.Minute)), job, 1000)
	if len(life.Calls) != 101 || life.Job.LastError != "max reschedules (100) exceeded" || life.Job.Status != jobs.Failed {
		t.Errorf("%d calls, %s: %q", len(life.Calls), life.Job.Status, life.Job.LastError)
	}
	if took := life.Calls[100].At.Sub(life.Calls[0].At); took != 100*time.Minute {
		t.Errorf("took %s, want 100m", took)
	}
}

func TestPlayExpiry(t *testing.T) {
	t.Parallel()
	hourly := func(opts ...func(*jobs.RescheduleError)) publisher.Handler {
		return returns(jobs.Reschedule(time.Hour, opts...))
	}
	for _, tc := range []struct {
		name    string
		opts    []jobs.Option
		handler publisher.Handler
		calls   int
		status  jobs.Status
		ended   time.Duration // after it was created
	}{
		{"never called", []jobs.Option{jobs.TTL(0)}, returns(nil), 0, jobs.Expired, 0},
		{"before its time has come", []jobs.Option{jobs.At(time.Now().Add(2 * time.Hour)), jobs.TTL(time.Hour)}, returns(nil), 0, jobs.Expired, time.Hour},
		{"put off beyond its end", []jobs.Option{jobs.TTL(150 * time.Minute)}, hourly(), 3, jobs.Expired, 150 * time.Minute},
		{"put off to its very end", []jobs.Option{jobs.TTL(2 * time.Hour)}, hourly(), 2, jobs.Expired, 2 * time.Hour},
		{
			"to be retried after its end",
			[]jobs.Option{jobs.TTL(time.Minute), jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 40 * time.Second})},
			returns(errBoom), 2, jobs.Expired, time.Minute,
		},
		{"extended each time", []jobs.Option{jobs.TTL(90 * time.Minute)}, hourly(jobs.ExtendExpiration(time.Hour)), 50, jobs.Pending, 0},
		{"extended by too little", []jobs.Option{jobs.TTL(90 * time.Minute)}, hourly(jobs.ExtendExpiration(30 * time.Minute)), 3, jobs.Expired, 180 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			life := publishertest.Play(t.Context(), tc.handler, publishertest.NewJob(jobs.New("gallery", nil, tc.opts...)), 50)
			if len(life.Calls) != tc.calls || life.Job.Status != tc.status {
				t.Fatalf("%d calls, %s; want %d, %s:\n%s", len(life.Calls), life.Job.Status, tc.calls, tc.status, life)
			}
			if tc.status == jobs.Expired {
				if ended := life.Job.MarkedExpiredAt.Sub(life.Job.CreatedAt); ended != tc.ended {
					t.Errorf("expired after %s, want %s", ended, tc.ended)
				}
			}
		})
	}
}

func TestPlayEnds(t *testing.T) {
	t.Parallel()
	job := publishertest.NewJob(jobs.New("gallery", nil, jobs.Delay(time.Minute)))
	life := publishertest.Play(t.Context(), returns(jobs.Reschedule(time.Second)), job, 3)
	if want := "+1m0s call 1: rescheduled by 1s\n+1m1s call 2: rescheduled by 1s\n+1m2s call 3: rescheduled by 1s\n+1m3s pending\n"; life.String() != want {
		t.Errorf("got\n%s\nwant\n%s", life, want)
	}
	// Cancelled before it is called.
	cancelledCtx, cancelJob := context.WithCancelCause(t.Context())
	cancelJob(publishertest.ErrCancelled)
	life = publishertest.Play(cancelledCtx, returns(nil), job, 3)
	if len(life.Calls) != 0 || life.Job.Status != jobs.Cancelled || life.String() != "+1m0s cancelled\n" {
		t.Errorf("got %s", life)
	}
	// The worker stops, and so does Play.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	life = publishertest.Play(ctx, publisher.Func(func(ctx context.Context, job *jobs.Job) error {
		if job.RescheduleCount == 0 {
			return jobs.Reschedule(0)
		}
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), job, 50)
	if n := len(life.Calls); n != 2 || life.Calls[1].Result != publisher.Requeued || life.Job.Status != jobs.Pending || life.Job.RescheduleCount != 1 {
		t.Errorf("%d calls:\n%s", n, life)
	}
}
