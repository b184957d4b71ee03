// Package ops is the read and act model of a running system: its destinations, breakers, limits, workers and
// jobs, and what operators do to them. The HTTP API is its form over HTTP, the CLI prints it, the dashboard
// renders it: a field that a type of this package gets is in all three. Codes are worded by one table for each
// kind.
package ops

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Options configure a System. Redis and Client are required.
type Options struct {
	Redis  redis.UniversalClient
	Client *jobs.Client
	// Log gets a line for each act, failed or not, and errors of the audit; nil: none.
	Log *slog.Logger
	// Cache holds reads of all destinations; every act makes it forget them. Nil: each read asks Redis.
	Cache *Cache
}

// System is a running system. It is safe for concurrent use.
type System struct {
	rdb     redis.UniversalClient
	client  *jobs.Client
	log     *slog.Logger
	cache   *Cache
	batches *Cache
	counts  chan struct{} // a semaphore of counts of batches
}

// New returns the system of a client. It sends no command to Redis.
func New(o Options) *System {
	return &System{
		rdb: o.Redis, client: o.Client, log: o.Log, cache: o.Cache,
		batches: NewCache(nil), counts: make(chan struct{}, countsAtOnce),
	}
}

// breakers is the namespace of the breakers.
func (s *System) breakers() breaker.Namespace { return breaker.Namespace(s.client.Namespace()) }

// Why is the operator that acts, and the reason, which histories show.
type Why struct {
	By, Reason string
	Set        []Edit // of a retry
}

// Edit changes a part of the jobs that are retried, as [jobs.Set] does.
type Edit struct {
	Path  string
	Value json.RawMessage
}

// Page is a page of a list.
type Page[T any] struct {
	Items []T    `json:"items" doc:"What was found."`
	Next  string `json:"next" doc:"The cursor of the next page, empty after the last one. A page may have fewer items than asked for, even none, and a next one all the same." example:""`
}

// List is a list without pages.
type List[T any] struct {
	Items []T `json:"items" doc:"What there is."`
}

// listOf returns a list that is never null.
func listOf[T any](items []T, err error) (List[T], error) {
	return List[T]{append([]T{}, items...)}, err
}

// Names returns the names of the known destinations, without Tidegate's own.
func (s *System) Names(ctx context.Context) ([]string, error) {
	known, err := s.client.Destinations(ctx)
	names := make([]string, len(known))
	for i, d := range known {
		names[i] = d.Name
	}
	return names, err
}

// Known returns an error for a destination that is not known: a *jobs.UnknownDestinationError that lists the known
// ones. Tidegate's own destinations are known.
func (s *System) Known(ctx context.Context, destination string) error {
	_, err := s.client.Destination(ctx, destination)
	if !errors.Is(err, jobs.ErrUnknownDestination) {
		return err
	}
	names, err := s.Names(ctx)
	if err != nil {
		return err
	}
	return &jobs.UnknownDestinationError{Name: destination, Known: names}
}

// foundNone returns an error for an unknown destination while others are known. It is called if no job was
// found: the jobs of a destination that no worker serves any more can still be read.
func (s *System) foundNone(ctx context.Context, destination string) error {
	if destination == "" {
		return nil
	}
	err := s.Known(ctx, destination)
	if unknown, ok := errors.AsType[*jobs.UnknownDestinationError](err); ok && len(unknown.Known) == 0 {
		return nil
	}
	return err
}
