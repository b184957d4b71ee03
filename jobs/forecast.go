package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/forecast"
	"github.com/tidegate/tidegate/internal/queue/forecast/snapshot"
)

// Forecast says when the backlog of a destination is empty, and what expires before it can start, if no further job is
// enqueued.
type Forecast struct {
	forecast.Report

	// Key is about the jobs that wait for a key's turn, or for its limits; nil unless it was asked for.
	Key *KeyForecast `json:"key" doc:"About the jobs of the key that was asked for; null: none was."`
}

// KeyForecast says when the jobs of a key that wait for its turn, or for its limits, have started.
type KeyForecast struct {
	Name    string       `json:"name" doc:"The key." example:"alice"`
	Backlog int          `json:"backlog" doc:"How many of its jobs wait for its turn, or for its limits; those among the others in the queue are not counted." example:"12"`
	EmptyAt forecast.ETA `json:"empty_at" doc:"When the last of them starts."`
}

// ETA says when a job starts: between From and To for 90 % of jobs.
type ETA = forecast.ETA

// Late is a job that expires before it can start.
type Late = forecast.Late

// ForecastAccuracy is how good earlier forecasts of a destination were.
type ForecastAccuracy = forecast.Accuracy

// ForecastAccuracies returns how good forecasts of destinations were, in one round trip. Errors: Redis's.
func (c *Client) ForecastAccuracies(ctx context.Context, destinations []string) ([]ForecastAccuracy, error) {
	return snapshot.Accuracies(ctx, c.rdb, c.ns, destinations) //nolint:wrapcheck // it says what it is
}

// Forecast returns the forecast of a destination, and, with a key, of the key's jobs. All callers of a process share
// it for a second, and its cost does not depend on the number of jobs. Errors: ErrUnknownDestination, or Redis's.
func (c *Client) Forecast(ctx context.Context, destination, key string) (*Forecast, error) {
	if err := c.checkExisting(ctx, destination); err != nil {
		return nil, fmt.Errorf("jobs: forecast: %w", err)
	}
	f, err := c.forecasts.Forecast(ctx, destination)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	out := &Forecast{Report: f.Report(destination)}
	if key != "" {
		if out.Key, err = c.forecastKey(ctx, f, destination, key); err != nil {
			return nil, fmt.Errorf("jobs: forecast: %w", err)
		}
	}
	return out, nil
}

func (c *Client) forecastKey(ctx context.Context, f *forecast.Forecast, destination, key string) (*KeyForecast, error) {
	held, err := c.heldByQueue(ctx, destination, key)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of a key: %w", err)
	}
	k := &KeyForecast{Name: key, EmptyAt: f.ETA(f.At, time.Time{})}
	limited, stopped, err := c.keyLimit(ctx, f, destination+"/"+key, func() (n int) {
		for _, h := range held {
			n += int(h.Val())
		}
		return n - 1
	}())
	if err != nil {
		return nil, err
	}
	last := limited
	for class, h := range held {
		n := int(h.Val())
		k.Backlog += n
		if q := &f.Queues[class]; n > 0 && q.AllKeys > 0 {
			last = latest(last, f.Start(class, q.PlaceInTurn(n-1)))
		}
	}
	switch {
	case stopped != "":
		k.EmptyAt = forecast.None(stopped)
	case k.Backlog == 0:
		k.EmptyAt.Because = "no job waits for this key"
	default:
		k.EmptyAt = f.ETA(last, limited)
	}
	return k, nil
}

// keyLimit returns when a job may start by the breaker and the declared limit of its key, with before other jobs of the key
// ahead of it, or why no job of the key starts.
func (c *Client) keyLimit(ctx context.Context, f *forecast.Forecast, name string, before int) (at time.Time, stopped string, err error) {
	b, err := breaker.Namespace(c.ns).Get(ctx, c.rdb, name)
	switch {
	case err != nil:
		return at, "", err //nolint:wrapcheck // it says what it is
	case b.UntilReset:
		return at, "the breaker of " + name + " is open by hand, until: tidegate breaker reset " + name, nil
	case b.State != breaker.Closed && b.Cause == breaker.CauseCredentials:
		return at, "the API refuses the credentials of " + name, nil
	}
	at = latest(f.At, b.OpenUntilRedis, b.AskedUntil)
	if b.Rate != nil {
		at = latest(at, b.Rate.Due(max(0, before)))
	}
	return at, "", nil
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
