package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// said is what Slack has been told of a case.
type said struct {
	// At is where the message is.
	At place `json:"at"`
	// Posted says that the message is there. Paged is the opening in which was paged last,
	// Recovered the one of which the recovery was told last, Reopened the one that was told
	// to have followed a recovery; all count from 1.
	Posted    bool `json:"posted,omitempty"`
	Paged     int  `json:"paged,omitempty"`
	Recovered int  `json:"recovered,omitempty"`
	Reopened  int  `json:"reopened,omitempty"`
	// Shown is a digest of the message as it was last shown.
	Shown string `json:"shown,omitempty"`
	// Posting is the id of a post that may have arrived, since when it may have, and from
	// when on it can be looked for.
	Posting      string    `json:"posting,omitempty"`
	PostingSince time.Time `json:"posting_since,omitzero"`
	LookAt       time.Time `json:"look_at,omitzero"`
}

// teller posts to Slack what belongs to one message, under a lock, and remembers it.
type teller struct {
	a    *Alerts
	turn *lock
	name string // under which what was said is kept
	said said
}

func (t *teller) load(ctx context.Context) error {
	said, _, err := load[said](ctx, t.a.store, t.name)
	if err == nil {
		t.said = *said
	}
	return err
}

func (t *teller) save(ctx context.Context) error { return t.turn.save(ctx, t.name, &t.said) }

// post sends a message, as a reply if there is one already. It notes where the first
// one is, and what it shows; its caller saves that. short is for those who have a
// webhook only.
//
// That it is about to be posted is written down first. If nobody knows then whether it
// arrived, because the answer was lost or this process died, the channel is looked
// through before it is posted again.
func (t *teller) post(ctx context.Context, p post, short message) error {
	a := t.a
	if a.bot == nil {
		return t.hook(ctx, short)
	}
	p.Thread = t.said.At
	now, err := a.now(ctx)
	if err != nil {
		return fmt.Errorf("alerts: %w", err)
	}
	if t.said.Posting == p.ID {
		if found, err := t.find(ctx, p, now); found || err != nil {
			return err
		}
	} else {
		t.said.Posting, t.said.PostingSince = p.ID, now
	}
	// If this is the last that is heard of it, it can have been taken up until then.
	t.said.LookAt = now.Add(slackTimeout + slowToShow)
	if err := t.save(ctx); err != nil {
		return err
	}
	if err := t.turn.extend(ctx); err != nil {
		return err
	}
	at, err := a.bot.send(ctx, p)
	if p.Thread.TS != "" && orphaned(err) {
		// Somebody has deleted the message, or its channel: what follows stands by itself,
		// in the channel that is configured now.
		p.Thread = place{}
		a.bot.forget()
		if err := t.turn.extend(ctx); err != nil {
			return err
		}
		if at, err = a.bot.send(ctx, p); err == nil {
			t.said.At = place{}
		}
	}
	switch {
	case err == nil:
		t.arrived(at, digest(p.message))
		a.heard(ctx, toSlack)
		return nil
	case needsAPerson(err) && a.hook != nil && t.hook(ctx, short) == nil:
		// The token will not do, but the webhook does.
		t.said.Posting, t.said.PostingSince = "", time.Time{}
		a.complain(ctx, toSlack, err)
		return nil
	case refusedOutright(err):
		t.said.Posting, t.said.PostingSince = "", time.Time{}
		if saveErr := t.save(ctx); saveErr != nil {
			return errors.Join(err, saveErr)
		}
	case !timedOut(err):
		// It has been dealt with, one way or the other.
		t.said.LookAt = now.Add(soonShown)
		if saveErr := t.save(ctx); saveErr != nil {
			return errors.Join(err, saveErr)
		}
	}
	return err
}

const (
	// blindAfter is how long it is tried to look for a message before it is posted again
	// without.
	blindAfter = 10 * time.Minute
	// slowToShow is how long Slack may take to do what it was asked for after its caller
	// has given up, and to show it; soonShown only to show it.
	slowToShow = 15 * time.Second
	soonShown  = 2 * time.Second
)

// find looks for a post that may have arrived.
func (t *teller) find(ctx context.Context, p post, now time.Time) (found bool, err error) {
	if rest := t.said.LookAt.Sub(now); rest > 0 {
		return false, jobs.Reschedule(rest)
	}
	if err := t.turn.extend(ctx); err != nil {
		return false, err
	}
	at, ok, err := t.a.bot.find(ctx, p.ID, p.Thread, t.said.PostingSince)
	if err != nil {
		if hint, isLimited := limited(err); isLimited {
			return false, jobs.Reschedule(bounded(hint)) // that says nothing of posts
		}
		if now.Sub(t.said.PostingSince) < blindAfter {
			return false, err
		}
		t.said.PostingSince = now // the next time without a look is as far off again
		return false, nil
	}
	if ok {
		t.arrived(at, "") // it may tell of earlier things
		t.a.heard(ctx, toSlack)
	}
	return ok, nil
}

// bounded is how long a hint is heeded where no breaker does that.
func bounded(hint time.Duration) time.Duration {
	return min(max(hint, time.Second), BreakerOptions().MaxCooldown)
}

// arrived notes that a post is there, and if it is the first one what it shows; "" if
// that is not known.
func (t *teller) arrived(at place, shows string) {
	t.said.Posting, t.said.PostingSince = "", time.Time{}
	if !t.said.Posted {
		t.said.At, t.said.Shown = at, shows
	}
}

func (t *teller) hook(ctx context.Context, short message) error {
	if err := t.turn.extend(ctx); err != nil {
		return err
	}
	if err := t.a.hook.send(ctx, short); err != nil {
		return err
	}
	t.a.heard(ctx, toSlack)
	return nil
}

// show brings the message up to date, if it can be and has to.
func (t *teller) show(ctx context.Context, m message) error {
	next := digest(m)
	if t.a.bot == nil || t.said.At.TS == "" || t.said.Shown == next {
		return nil
	}
	if err := t.turn.extend(ctx); err != nil {
		return err
	}
	err := t.a.bot.update(ctx, t.said.At, m)
	hint, isLimited := limited(err)
	switch {
	case err == nil:
		t.a.heard(ctx, toSlack)
	case isLimited:
		return jobs.Reschedule(bounded(hint)) // that says nothing of posts
	case needsAPerson(err) && t.a.hook != nil:
		t.a.complain(ctx, toSlack, err) // what there is to say, the webhook says
	case !orphaned(err):
		return err
	}
	// If it failed, somebody has deleted it, or nobody may edit it any more.
	t.said.Shown = next
	return t.save(ctx)
}

// digest tells whether a message has changed.
func digest(m message) string {
	raw, err := json.Marshal(m.Blocks)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(append(raw, m.Text...))
	return hex.EncodeToString(sum[:8])
}
