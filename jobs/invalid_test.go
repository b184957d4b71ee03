package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// What ErrInvalid says of an error holds whichever method returns it.
func TestInvalidInputIsAValidationError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := context.Background()
	enqueue := func(s *jobs.Spec) error { _, err := b.Enqueue(ctx, s); return err }
	list := func(o jobs.ListOptions) error { _, err := b.List(ctx, o); return err }
	for name, tc := range map[string]struct {
		err   error
		field string
	}{
		"nil":                  {enqueue(nil), "job"},
		"no payload":           {enqueue(&jobs.Spec{Destination: b.dest}), "payload"},
		"payload":              {enqueue(jobs.New(b.dest, math.NaN())), "payload"},
		"destination":          {enqueue(jobs.New("Not a name", 1)), "destination"},
		"reserved destination": {enqueue(jobs.New("tidegate-alerts", 1)), "destination"},
		"unknown parent":       {enqueue(jobs.New(b.dest, 1, jobs.After("unknown"))), "after"},
		"max reschedules":      {enqueue(jobs.New(b.dest, 1, jobs.MaxReschedules(-1))), "max_reschedules"},
		"delay beyond the ttl": {enqueue(jobs.New(b.dest, 1, jobs.Delay(hour), jobs.TTL(time.Minute))), "delay"},
		"one of many":          {func() error { r, _ := b.EnqueueMany(ctx, []*jobs.Spec{nil}); return r[0].Err }(), "job"},
		"limit":                {list(jobs.ListOptions{Limit: -1}), "limit"},
		"cursor":               {list(jobs.ListOptions{Cursor: "x"}), "cursor"},
		"status":               {list(jobs.ListOptions{Filter: jobs.Filter{Statuses: []jobs.Status{"x"}}}), "status"},
		"action":               {func() error { _, err := b.Act(ctx, "x", []string{"id"}); return err }(), "action"},
		"action by filter":     {func() error { _, err := b.ActWhere(ctx, "x", jobs.Filter{Destination: b.dest}); return err }(), "action"},
		"filter":               {func() error { _, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{}); return err }(), "filter"},
		"key of a filter":      {func() error { _, err := b.CountWhere(ctx, jobs.ActionCancel, jobs.Filter{Key: "?"}); return err }(), "key"},
		"key that is not one":  {func() error { _, err := b.HeldCount(ctx, b.dest, "?"); return err }(), "key"},
	} {
		invalid, ok := errors.AsType[*jobs.ValidationError](tc.err)
		if !errors.Is(tc.err, jobs.ErrInvalid) || !ok || len(invalid.Fields) != 1 || invalid.Fields[0].Field != tc.field {
			t.Errorf("%s: %v: want a validation error of %s", name, tc.err, tc.field)
		}
	}
	unknown, ok := errors.AsType[*jobs.UnknownDestinationError](enqueue(jobs.New("unknown", 1)))
	if !ok || unknown.Name != "unknown" || !errors.Is(unknown, jobs.ErrUnknownDestination) {
		t.Errorf("unknown destination: %v", unknown)
	}
}

func TestNewClientJudgesItsOptions(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	c, err := jobs.NewClient(rdb,
		jobs.WithLimits(jobs.Limits{MaxPayloadBytes: -1, RetryMaxRetries: -2, RetryMaxDelay: -time.Second}),
		jobs.WithDestinations("fine", "Not a name"), jobs.WithRetention(-time.Hour), jobs.WithNamespace("Shop"))
	const want = `jobs: new client: destinations: "Not a name" must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit; ` +
		"limits.MaxPayloadBytes: must not be negative, is -1; limits.RetryMaxDelay: must not be negative, is -1s; " +
		`limits.RetryMaxRetries: must not be negative, is -2; namespace: "Shop" is not a valid namespace: it must match [a-z0-9][a-z0-9-]{0,30}; ` +
		"retention: must not be negative, is -1h0m0s"
	if c != nil || err == nil || err.Error() != want || !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("error %v, want %s", err, want)
	}
	// No logger is the default one.
	c, err = jobs.NewClient(rdb, jobs.WithLogger((*slog.Logger)(nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Enqueue(context.Background(), jobs.New(redistest.Name(t, "new"), 1)); err != nil && !errors.Is(err, jobs.ErrUnknownDestination) {
		t.Error(err)
	}
}
