package alerts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// progress is what a notifier has sent of a thread.
type progress struct {
	// Root is where the first notice is.
	Root notice.Root `json:"root"`
	// Posted is true if the first notice was sent. Paged is the opening of the last page,
	// Recovered that of the last recovery, Reopened that of the last reply after a recovery;
	// all count from 1.
	Posted    bool `json:"posted,omitempty"`
	Paged     int  `json:"paged,omitempty"`
	Recovered int  `json:"recovered,omitempty"`
	Reopened  int  `json:"reopened,omitempty"`
	// Raised is the opening in which a page was last sent, whether or not it arrived.
	Raised int `json:"raised,omitempty"`
	// Sending is the id of a notice that may have arrived, since when it may have, and from
	// when on it can be looked for.
	Sending      string    `json:"sending,omitempty"`
	SendingSince time.Time `json:"sending_since,omitzero"`
	LookAt       time.Time `json:"look_at,omitzero"`
}

// sender sends the notices of one thread through one notifier, under a lock.
type sender struct {
	a        *Alerts
	to       notice.Notifier
	lock     *lock
	key      string // of progress
	progress progress
}

func (a *Alerts) sender(ctx context.Context, lock *lock, to notice.Notifier, id string) (*sender, error) {
	name := a.store.key("thread", to.Name(), id)
	p, _, err := load[progress](ctx, a.store, name)
	if err != nil {
		return nil, err
	}
	p.Root.Hold = lock.extend
	return &sender{a, to, lock, name, *p}, nil
}

func (s *sender) save(ctx context.Context) error { return s.lock.save(ctx, s.key, &s.progress) }

const (
	// blindAfter is how long a notice is looked for before it is sent again without.
	blindAfter = 10 * time.Minute
	// slowToShow is how long a service may take to do and show a request after its caller has
	// given up; soonShown only to show it.
	slowToShow = 15 * time.Second
	soonShown  = 2 * time.Second
)

// send sends a notice; its caller saves the progress.
//
// That it is about to be sent is saved first. If it is unknown then whether it arrived,
// because the answer was lost or this process died, it is looked for before it is sent
// again, if the notifier can.
func (s *sender) send(ctx context.Context, n *notice.Notice) error {
	a, p := s.a, &s.progress
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	if p.Sending != n.ID {
		p.Sending, p.SendingSince = n.ID, now
	} else if editor, ok := s.to.(notice.Editor); ok {
		if found, err := s.find(ctx, editor, n, now); found || err != nil {
			return err
		}
	}
	// If no answer comes, the service may act until then.
	p.LookAt = now.Add(notice.CallTimeout + slowToShow)
	if err := s.save(ctx); err != nil {
		return err
	}
	if err := s.lock.extend(ctx); err != nil {
		return err
	}
	err = s.to.Send(ctx, n, &p.Root)
	e, outside := errors.AsType[*notice.Error](err)
	switch {
	case err == nil, outside && e.Delivered:
		p.Sending, p.SendingSince = "", time.Time{}
		a.delivered(ctx, s.to.Name())
		if err != nil {
			a.logPermanent(ctx, s.to.Name(), e)
		}
		return nil
	case !outside:
		return err
	case e.Refused:
		p.Sending, p.SendingSince = "", time.Time{}
	case !e.Timeout:
		p.LookAt = now.Add(soonShown) // the service has acted by now, or not
	default:
		return err
	}
	return errors.Join(err, s.save(ctx))
}

// find looks for a notice that may have arrived.
func (s *sender) find(ctx context.Context, editor notice.Editor, n *notice.Notice, now time.Time) (found bool, err error) {
	p := &s.progress
	if rest := p.LookAt.Sub(now); rest > 0 {
		return false, jobs.Reschedule(rest)
	}
	if err := s.lock.extend(ctx); err != nil {
		return false, err
	}
	found, err = editor.Find(ctx, n, &p.Root, p.SendingSince)
	if e, ok := errors.AsType[*notice.Error](err); ok && e.Limited {
		return false, jobs.Reschedule(bounded(e.RetryAfter)) // sending is not limited by that
	}
	switch {
	case err != nil && now.Sub(p.SendingSince) < blindAfter:
		return false, err
	case err != nil:
		p.SendingSince = now // the next time without a look is as far off again
		return false, nil    //nolint:nilerr // it is sent without a look
	case found:
		p.Sending, p.SendingSince = "", time.Time{}
		s.a.delivered(ctx, s.to.Name())
	}
	return found, nil
}

// bounded bounds a hint where no breaker does.
func bounded(hint time.Duration) time.Duration {
	return min(max(hint, time.Second), breakerOptions().MaxCooldown)
}

// update shows n in place of the first notice, if the notifier can and it has changed.
func (s *sender) update(ctx context.Context, n *notice.Notice) error {
	editor, ok := s.to.(notice.Editor)
	if !ok {
		return nil
	}
	shown := s.progress.Root.Shown
	updated, err := editor.Update(ctx, n, &s.progress.Root)
	e, outside := errors.AsType[*notice.Error](err)
	switch {
	case updated:
		s.a.delivered(ctx, s.to.Name())
	case outside && e.Limited:
		return jobs.Reschedule(bounded(e.RetryAfter)) // sending is not limited by that
	case outside && e.Delivered:
		s.a.logPermanent(ctx, s.to.Name(), e)
	case err != nil:
		return err
	}
	if s.progress.Root.Shown == shown {
		return nil
	}
	return s.save(ctx)
}

// steps is the state of a thread, by which is decided what to send of it.
type steps struct {
	to        notice.Notifier
	id        string // of the thread
	recovery  string // the id of its recovery
	openings  int
	open      bool // it lasts
	over      bool // if it does not last, nothing more is to be expected of it
	page      bool // a page is due
	situation func() (*situation, error)
	opened    func(*situation) error // after the first notice; nil: nothing
}

// sendSteps sends what a notifier has not sent of a thread, in order.
func (a *Alerts) sendSteps(ctx context.Context, lock *lock, x *steps) error {
	s, err := a.sender(ctx, lock, x.to, x.id)
	if err != nil {
		return err
	}
	p, c, pager := &s.progress, a.composer, x.to.Pager()
	read := sync.OnceValues(x.situation)
	send := func(id string, compose func(situation) *notice.Notice, note func()) error {
		facts, err := read()
		if err != nil {
			return err
		}
		n := compose(*facts)
		n.ID = id
		if err := s.send(ctx, n); err != nil {
			return err
		}
		note()
		return s.save(ctx)
	}
	if !pager && !p.Posted {
		if err := send(x.id+".message", c.opened, func() { p.Posted = true }); err != nil {
			return err
		}
		if facts, err := read(); err == nil && x.opened != nil {
			if err := x.opened(facts); err != nil {
				return err
			}
		}
	}
	// After a recovery was sent, a page for the next opening follows.
	again := p.Paged > 0 && x.open && p.Recovered >= p.Paged
	// A late page informs readers; for a pager it is of no use.
	if x.page && (p.Paged == 0 || again) && !(pager && x.over) {
		id := x.id + ".page"
		if again {
			id = fmt.Sprintf("%s.page-%d", x.id, x.openings)
		}
		p.Raised = x.openings // saved before it is sent
		page := func(s situation) *notice.Notice { return c.page(s, a.o.OpenTooLong) }
		if err := send(id, page, func() {
			p.Paged = x.openings
			if p.Recovered > 0 {
				p.Reopened = x.openings
			}
		}); err != nil {
			return err
		}
	}
	// A failed update does not block what follows.
	var notUpdated error
	if !pager {
		facts, err := read()
		if err != nil {
			return err
		}
		notUpdated = s.update(ctx, c.opened(*facts))
	}
	// A pager resolves what it may have triggered, also if a later attempt was refused.
	sent := !pager || p.Raised > p.Recovered
	switch {
	case !pager && x.open && p.Recovered > p.Reopened && p.Recovered < x.openings:
		// The last notice was a recovery.
		id := fmt.Sprintf("%s.reopened-%d", x.id, x.openings)
		err = send(id, c.reopened, func() { p.Reopened = x.openings })
	case !x.open && x.over && p.Recovered < x.openings && sent:
		err = send(x.recovery, c.recovered, func() { p.Recovered = x.openings })
	}
	if err != nil {
		return err
	}
	return notUpdated
}

// answersLate is how long the answers that opened a breaker can be on their way to Redis.
const answersLate = time.Second

// openedByRefusals reports whether the API's answers opened the breaker.
func openedByRefusals(cause string) bool {
	switch cause {
	case breaker.CauseThreshold, breaker.CauseHint, breaker.CauseRamp:
		return true
	}
	return false
}
