package alerts

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// pagedSaid is what PagerDuty has been told of a case. Triggering says that it may have
// been: a resolve of what was not triggered does no harm.
type pagedSaid struct {
	Triggering bool `json:"triggering,omitempty"`
	Triggered  bool `json:"triggered,omitempty"`
	Resolved   bool `json:"resolved,omitempty"`
}

// deliverPages pages on-call for the cases of a breaker that are open for too long, and
// resolves the pages of those that are over. A case that is over before its page could
// be sent is not paged for.
func (a *Alerts) deliverPages(ctx context.Context, job *jobs.Job, what alertJob) error {
	return a.deliverCases(ctx, job, what, paged, func(turn *lock, c *incidentCase, newest, over bool, now time.Time) error {
		return a.page(ctx, turn, what.Subject, c, newest, over, now)
	})
}

func (a *Alerts) page(ctx context.Context, turn *lock, name string, c *incidentCase, newest, over bool, now time.Time) error {
	place := key("paged", c.ID)
	told, _, err := load[pagedSaid](ctx, a.store, place)
	if err != nil {
		return err
	}
	if c.open() && told.Resolved {
		told = &pagedSaid{} // it is open again: so is the page
	}
	if !told.Triggered && !over && c.pageDue(now, a.o.OpenTooLong) {
		s, err := a.situation(ctx, name, c, newest, now)
		if err != nil {
			return err
		}
		told.Triggering = true
		if err := turn.save(ctx, place, told); err != nil {
			return err
		}
		if err := turn.extend(ctx); err != nil {
			return err
		}
		payload := pagerPayload{
			Summary: a.write.pagerSummary(*s, a.o.OpenTooLong), Source: "tidegate/" + name, Severity: severityCritical,
			Component: name, Group: "tidegate", Class: "circuit breaker open", Details: a.write.pagerDetails(*s),
		}
		if err := a.pager.trigger(ctx, c.ID, payload, c.Since, "/breakers/"+name); err != nil {
			return err
		}
		a.heard(ctx, toPager)
		told.Triggered = true
		if err := turn.save(ctx, place, told); err != nil {
			return err
		}
	}
	if (told.Triggering || told.Triggered) && !told.Resolved && over && !c.open() {
		if err := turn.extend(ctx); err != nil {
			return err
		}
		if err := a.pager.resolve(ctx, c.ID); err != nil {
			return err
		}
		a.heard(ctx, toPager)
		told.Resolved = true
		return turn.save(ctx, place, told)
	}
	return nil
}
