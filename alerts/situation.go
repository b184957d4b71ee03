package alerts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// situation is the data of a message about an incident. Unknown values are zero. Times are
// on Redis's clock.
type situation struct {
	thread
	// Now is when this was read.
	Now time.Time
	// TooLong is after which time incidents page; 0 and less: never.
	TooLong time.Duration
	// Destination is the destination's name; Name is the breaker's ("shop", "shop/alice"), or "shop/*" where all keys
	// of a destination are summed up.
	Destination, Name string
	State             breaker.State
	// Learned words the limit that was learned from refusals, "" for none.
	Learned string
	// Answers are the last refusals of the API, the newest first, at most 3.
	Answers []refusal
	// SuggestedRate is the rate that an API accepts which spaces calls; see breaker.Status.
	SuggestedRate string
	// Until is when the API is asked again; zero: not before a person resets the breaker.
	Until time.Time
	// Asked is until when the API asked to wait, if it is asked again before that.
	Asked time.Time
	// Backlog is how many jobs wait, Expiring how many of them expire before Until.
	// Negative: not known.
	Backlog, Expiring int
	// Gone is when the last of them starts by the forecast, and Late how many expire before they can; zero: not known.
	Gone time.Time
	Late int
	// Refused is true for a thread of keys whose credentials are refused.
	Refused bool
	// Open are open keys of a thread of keys, those open for longest first, at most maxKeys.
	Open []keySituation
	// KeysOpen counts the keys that are open now, KeysPermanent the open keys whose credentials only a person can renew,
	// KeysNoToken the open keys that have no token.
	KeysOpen, KeysPermanent, KeysNoToken int
}

// keySituation is one key in a thread of keys, with the jobs that wait for it.
type keySituation struct {
	breaker.Status
	Key  string
	Held int // negative: not known
}

// maxKeys is how many keys a message names.
const maxKeys = 10

// allKeys ends the name of a subject that stands for all rate-limited keys of a destination, refusedKeys the name of
// one for all keys whose credentials are refused.
const (
	allKeys     = "/*"
	refusedKeys = "/*refused"
)

// keysOf returns the destination of a subject that stands for keys.
func keysOf(subject string) (destination string, refused, ok bool) {
	if destination, refused = strings.CutSuffix(subject, refusedKeys); refused {
		return destination, true, true
	}
	destination, ok = strings.CutSuffix(subject, allKeys)
	return destination, false, ok
}

// isRefused reports whether a key's incident is one of refused credentials: credentials that only a
// person can renew stay so, whatever the API answers to a later probe.
func isRefused(cause string, permanent bool) bool {
	return permanent || cause == breaker.CauseCredentials
}

// openKeys returns the keys of a destination's breakers that are not CLOSED: those with
// refused credentials, or the others. Those that are open for longest are first.
func openKeys(keys []breaker.Status, refused bool) []breaker.Status {
	out := slices.DeleteFunc(slices.Clone(keys), func(s breaker.Status) bool {
		return s.State == breaker.Closed || isRefused(s.IncidentCause, s.Permanent) != refused
	})
	slices.SortFunc(out, func(x, y breaker.Status) int {
		return cmp.Or(x.OpenedAt.Compare(y.OpenedAt), strings.Compare(x.Name, y.Name))
	})
	return out
}

// update brings the record up to date. It returns what reads the rest of the facts.
func (s *sender) update(ctx context.Context, subject string, opened time.Time) (func() (*situation, error), error) {
	a := s.a
	if destination, refused, ok := keysOf(subject); ok {
		read, err := a.breakers.ReadOne(ctx, a.rdb, breaker.Query{Keys: true}, destination)
		if err != nil {
			return nil, fmt.Errorf("alerts: keys of %s: %w", destination, err)
		}
		open, kind := openKeys(read.Keys, refused), "keys"
		if refused {
			kind = "refused"
		}
		s.followKeys(destination+"."+kind+"-", open, opened, s.now)
		return sync.OnceValues(func() (*situation, error) { return a.keysSituation(ctx, destination, refused, &s.thread, open, s.now) }), nil
	}
	read, err := a.breakers.ReadOne(ctx, a.rdb, breaker.Query{Incidents: 50}, subject)
	if err != nil {
		return nil, fmt.Errorf("alerts: incidents of %s: %w", subject, err)
	}
	s.follow(read.Incidents, s.now)
	return sync.OnceValues(func() (*situation, error) { return a.situation(ctx, subject, &s.thread, s.now) }), nil
}

// situation reads what a notice of a breaker's thread holds.
func (a *Alerts) situation(ctx context.Context, name string, t *thread, now time.Time) (*situation, error) {
	s := &situation{
		thread: *t, Now: now, Destination: name, Name: name, State: breaker.Closed, Expiring: -1,
	}
	var err error
	if s.Backlog, err = a.backlog(ctx, name); err != nil {
		return nil, err
	}
	status, err := a.breakers.Get(ctx, a.rdb, name)
	if err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if status.Learned != nil {
		s.Learned = explain.LearnedLimit(*status.Learned, time.Time{}) // the message stays
	}
	if !t.open() || status.State == breaker.Closed {
		return s, nil // if it has closed just now, the next job reports that
	}
	s.State, s.Until, s.Asked, s.SuggestedRate = status.State, status.OpenUntilRedis, status.AskedUntil, status.SuggestedRate
	s.Rescheduled = max(t.Rescheduled, status.Rescheduled)
	if s.Answers, err = a.store.answers(ctx, s.Kind(), name, t); err != nil || s.Until.IsZero() {
		return s, err
	}
	if s.Expiring, err = a.client.Expiring(ctx, name, s.Until); err != nil {
		return nil, fmt.Errorf("alerts: %w", err)
	}
	if f, err := a.client.Forecast(ctx, name, ""); err == nil && f.EmptyAt.At != nil && f.Backlog > 0 { // else the notice goes without it
		s.Gone, s.Late = *f.EmptyAt.At, f.Expire
	}
	return s, nil
}

// backlog counts the jobs that wait; -1 for a destination without queues.
func (a *Alerts) backlog(ctx context.Context, destination string) (int, error) {
	n, err := a.client.Backlog(ctx, destination)
	if errors.Is(err, jobs.ErrUnknownDestination) {
		return -1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("alerts: %w", err)
	}
	return n, nil
}

// keysSituation reads what a notice of a destination's keys holds.
func (a *Alerts) keysSituation(ctx context.Context, destination string, refused bool, t *thread, open []breaker.Status, now time.Time) (*situation, error) {
	s := &situation{
		thread: *t, Now: now, Destination: destination, Name: destination + allKeys, Refused: refused,
		State: breaker.Closed, Backlog: -1, Expiring: -1, KeysOpen: len(open),
	}
	if len(open) > 0 {
		s.State, s.Cause = breaker.Open, open[0].IncidentCause
	}
	if refused {
		s.Cause = breaker.CauseCredentials
	} else { // the other jobs of the destination continue
		var err error
		if s.Backlog, err = a.backlog(ctx, destination); err != nil {
			return nil, err
		}
	}
	for i, o := range open {
		s.counts = counts{s.Probes + o.Probes, s.Wasted + o.Wasted, s.Rescheduled + o.Rescheduled}
		switch {
		case o.Permanent:
			s.KeysPermanent++
		case o.NoCredentials:
			s.KeysNoToken++
		}
		if s.Reason == "" || o.Permanent && s.KeysPermanent == 1 {
			s.Reason = o.Reason
		}
		if i >= maxKeys {
			continue
		}
		_, key, err := breaker.ParseName(o.Name)
		if err != nil {
			continue
		}
		held, err := a.client.HeldCount(ctx, destination, key)
		if err != nil {
			return nil, fmt.Errorf("alerts: %w", err)
		}
		s.Open = append(s.Open, keySituation{o, key, held})
	}
	if len(open) > 0 {
		var err error
		kind := incidentKind(open[0].IncidentCause, open[0].NoCredentials)
		if s.Answers, err = a.store.answers(ctx, kind, open[0].Name, t); err != nil {
			return nil, err
		}
	}
	return s, nil
}
