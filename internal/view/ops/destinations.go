package ops

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// Workers returns the workers that sent a heartbeat in the last 30 seconds, by name.
func (s *System) Workers(ctx context.Context) (jobs.Workers, error) {
	return s.client.Workers(ctx)
}

// workers returns the workers, from a read at most a second ago.
func (s *System) workers(ctx context.Context) (jobs.Workers, error) {
	return readAll(ctx, s.cache, "workers", s.client.Workers)
}

// RecordProblem says that Redis is out of memory, so that what is read may be old; "" if it is not, or not known.
func (s *System) RecordProblem(ctx context.Context) string {
	memory, err := readAll(ctx, s.cache, "memory", func(ctx context.Context) (store.Eviction, error) { return store.ReadEviction(ctx, s.rdb) })
	if err != nil || !memory.Full {
		return ""
	}
	return store.FullProblem
}

// Stats is what a destination's queues hold, and its breaker.
type Stats struct {
	jobs.DestinationStats

	Breaker     breaker.Status        `json:"breaker" doc:"Its breaker."`
	Unreachable *jobs.UnreachableInfo `json:"unreachable,omitempty" doc:"Since when no worker reaches it, and why; absent: a worker does, or none serves it."`
	Alone       *jobs.RefusedAlone    `json:"refused_alone,omitempty" doc:"Jobs that its API refused while it accepted others, in this hour and the one before; absent: none."`
	HeldBy      string                `json:"held_by"`
	Calls       *CallTimes            `json:"calls,omitempty" doc:"How long its calls took; absent: none has ended within the last hour."`
}

// CallTimes are how long the calls of a destination took.
type CallTimes = store.CallTimes

// CallTimes reads how long the calls of destinations took, in their order; nil where there was none.
func (s *System) CallTimes(ctx context.Context, names ...string) ([]*CallTimes, error) {
	return s.namespace().CallTimes(ctx, s.rdb, names, time.Now())
}

// Stats returns figures of a destination, or of all known ones for "", by name. They cost the same whatever the
// number of jobs.
func (s *System) Stats(ctx context.Context, destination string) ([]Stats, error) {
	if destination != "" {
		if err := mayWhole(ctx, destination); err != nil {
			return nil, err
		}
		found, err := s.client.Stats(ctx, destination)
		if err != nil {
			return nil, err
		}
		return s.withBreakers(ctx, found)
	}
	all, err := readAll(ctx, s.cache, "stats with breakers", func(ctx context.Context) ([]Stats, error) {
		found, err := s.allStats(ctx)
		if err != nil {
			return nil, err
		}
		return s.withBreakers(ctx, found)
	})
	return ofCaller(ctx, all, func(d Stats) string { return d.Destination }), err
}

func (s *System) allStats(ctx context.Context) ([]jobs.DestinationStats, error) {
	return readAll(ctx, s.cache, "stats", func(ctx context.Context) ([]jobs.DestinationStats, error) {
		return s.client.Stats(ctx, "")
	})
}

func (s *System) withBreakers(ctx context.Context, found []jobs.DestinationStats) ([]Stats, error) {
	names := make([]string, len(found))
	for i, d := range found {
		names[i] = d.Destination
	}
	workers, err := s.workers(ctx)
	if err != nil {
		return nil, err
	}
	breakers, err := s.AllBreakers(ctx, names...)
	if err != nil {
		return nil, err
	}
	alone, err := s.client.RefusedAlone(ctx, names...)
	if err != nil {
		return nil, err
	}
	calls, err := s.CallTimes(ctx, names...)
	if err != nil {
		return nil, err
	}
	out, now := make([]Stats, len(found)), time.Now()
	for i, d := range found {
		out[i] = Stats{
			DestinationStats: d, Breaker: breakers[i][0], Unreachable: unreached(workers, d.Destination), Calls: calls[i],
			HeldBy: explain.Holds(breakers[i][0], breakers[i][1:], d.Pause, now),
		}
		if r, refused := alone[d.Destination]; refused {
			out[i].Alone = &r
		}
	}
	return out, nil
}

// unreached says since when no worker reaches a destination, and why; nil if one does, or none serves it.
func unreached(workers jobs.Workers, destination string) *jobs.UnreachableInfo {
	if u, all := workers.Unreached(destination); all {
		return &u
	}
	return nil
}

// Destination is one that is known.
type Destination struct {
	Name          string                `json:"name" doc:"Its name." example:"deviantart"`
	WorkersSeenAt *time.Time            `json:"workers_seen_at" doc:"The last heartbeat of a worker that serves it; null: never." example:"2030-01-31T14:35:00Z"`
	Paused        bool                  `json:"paused" doc:"True while an operator has paused it." example:"false"`
	Backlog       int                   `json:"backlog" doc:"How many of its jobs have not ended." example:"42"`
	Unreachable   *jobs.UnreachableInfo `json:"unreachable,omitempty" doc:"Since when no worker reaches it, and why; absent: a worker does, or none serves it."`
}

// Destinations returns the known destinations, by name, without Tidegate's own.
func (s *System) Destinations(ctx context.Context) ([]Destination, error) {
	found, err := s.allStats(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := s.workers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Destination, len(found))
	for i, d := range found {
		out[i] = Destination{d.Destination, d.WorkersSeenAt, d.Paused, d.Backlog, unreached(workers, d.Destination)}
	}
	return ofCaller(ctx, out, func(d Destination) string { return d.Name }), nil
}

// PausedDestination is what a pause or resume of a destination came to.
type PausedDestination struct {
	Destination string `json:"destination" doc:"Its name." example:"deviantart"`
	Paused      bool   `json:"paused" doc:"True if it is paused now." example:"true"`
	Changed     bool   `json:"changed" doc:"False if it was so already." example:"true"`
}

// PauseDestination pauses a destination, or resumes it. An unknown one is a *jobs.UnknownDestinationError.
func (s *System) PauseDestination(ctx context.Context, name string, pause bool, why Why) (PausedDestination, error) {
	out := PausedDestination{Destination: name, Paused: pause}
	act := "resume destination"
	err := mayWhole(ctx, name)
	if err != nil {
		return out, err
	}
	if pause {
		act = "pause destination"
		out.Changed, err = s.client.PauseDestination(ctx, name, jobs.By(why.By), jobs.Because(why.Reason))
	} else {
		out.Changed, err = s.client.ResumeDestination(ctx, name)
	}
	switch {
	case jobs.Refused(err):
	case err == nil && !out.Changed:
		s.logActed(ctx, act, name, err, why)
	default:
		s.acted(ctx, act, name, err, why)
	}
	return out, err
}

// ForgottenDestination is what forgetting a destination came to.
type ForgottenDestination struct {
	Destination string `json:"destination" doc:"Its name." example:"deviantart"`
	Deleted     int    `json:"deleted" doc:"How many finished jobs were deleted with it." example:"12"`
}

// ForgetDestination takes a destination that was removed out of all lists, with its breaker, limits, statistics and
// finished jobs. Errors: jobs.ErrInUse, an *jobs.UnknownDestinationError, or Redis's.
func (s *System) ForgetDestination(ctx context.Context, name string, why Why) (out ForgottenDestination, err error) {
	out.Destination = name
	if out.Deleted, err = s.client.ForgetDestination(ctx, name); err == nil {
		err = s.forgetBreaker(ctx, name)
	}
	if !jobs.Refused(err) && !errors.Is(err, jobs.ErrInUse) {
		s.acted(ctx, "forget destination", name, err, why)
	}
	return out, err
}

func (s *System) forgetBreaker(ctx context.Context, name string) error {
	err := s.breakers().Forget(ctx, s.rdb, name)
	if err == nil {
		_, err = s.namespace().UnsetOverride(ctx, s.rdb, name)
	}
	return err
}

// ForgetRemoved forgets the destinations that were taken out of a destinations file once nothing is left of them:
// finished jobs are kept for their retention first, failed ones for so long. Errors: Redis's.
func (s *System) ForgetRemoved(ctx context.Context, failed time.Duration) error {
	names, err := s.client.ForgetRemoved(ctx, failed)
	errs := []error{err}
	for _, name := range names {
		err := s.forgetBreaker(ctx, name)
		s.acted(ctx, "forget destination", name, err, Why{By: "tidegate", Reason: "it was taken out of the destinations file, and its last job is gone"})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Target is all that pages show of a destination.
type Target struct {
	Name   string
	SeenAt time.Time // the last heartbeat of a worker that serves it; zero: never
	// Breaker is the destination's own breaker, Keys are the breakers of its keys that are kept.
	Breaker breaker.Status
	Keys    []breaker.Status
	// Survey counts its jobs. Backlog counts its unfinished jobs, Waiting the unfinished jobs that are not running.
	Survey           jobs.Survey
	Backlog, Waiting int
	// Incidents are the last ones of its own breaker, the oldest first.
	Incidents []breaker.Incident
	// Workers serve it, Partly of them do not reach it. Unreached is set if none does.
	Workers, Partly int
	Unreached       *jobs.UnreachableInfo
	// HeldBy says what holds its jobs back now; "" if nothing is known to.
	HeldBy string
}

// workerSilence is how long after its last heartbeat a worker of Tidegate's own destinations, which workers do not
// list, counts as alive.
const workerSilence = 30 * time.Second

// Targets reads destinations in a few round trips, however many there are. Jobs that expire within soon are
// counted as of now, on Redis's clock.
func (s *System) Targets(ctx context.Context, of []jobs.Destination, workers jobs.Workers, soon time.Duration, now time.Time) ([]Target, error) {
	if len(of) == 0 {
		return nil, nil
	}
	names := make([]string, len(of))
	for i, d := range of {
		names[i] = d.Name
	}
	breakers, err := s.breakers().Read(ctx, s.rdb, breaker.Query{Keys: true, Incidents: breaker.All}, names...)
	if err != nil {
		return nil, err
	}
	surveys, err := s.client.Surveys(ctx, names, soon)
	if err != nil {
		return nil, err
	}
	out := make([]Target, len(of))
	for i, d := range of {
		t := Target{
			Name: d.Name, SeenAt: d.SeenAt, Breaker: breakers[i].Status, Keys: breakers[i].Keys, Survey: surveys[i], Incidents: breakers[i].Incidents,
			Unreached: unreached(workers, d.Name),
		}
		for _, w := range workers {
			if !slices.Contains(w.Destinations, d.Name) {
				continue
			}
			t.Workers++
			if _, ok := w.Unreachable[d.Name]; ok {
				t.Partly++
			}
		}
		if t.Workers == 0 && store.System(t.Name) && now.Sub(t.SeenAt) < workerSilence {
			t.Workers = 1
		}
		t.count()
		t.HeldBy = explain.Holds(t.Breaker, t.Keys, t.Survey.Pause, now)
		out[i] = t
	}
	return out, nil
}

// count derives numbers from what was read.
func (t *Target) count() {
	for status, n := range t.Survey.Counts {
		if !status.Final() {
			t.Backlog += n
		}
	}
	t.Waiting = t.Backlog - t.Survey.Counts[jobs.Running]
	if t.Survey.Ready+t.Survey.Held+t.Survey.Counts[jobs.Running] == 0 {
		t.Breaker.SlowStart = 0 // it goes on with the next calls
	}
}
