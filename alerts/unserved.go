package alerts

import (
	"context"
	"fmt"
	"time"
)

const (
	// unservedAfter is how long a destination with jobs must be without a worker before
	// that is notified: longer than the replacement of a fleet takes.
	unservedAfter = 5 * time.Minute
	// unservedEvery is how often at most a destination is notified of.
	unservedEvery = 24 * time.Hour
)

// unserved is a destination with jobs that no worker serves any more.
type unserved struct {
	Destination string
	Since, At   time.Time
	Backlog     int
}

// notifyUnserved looks for destinations with jobs that workers served once and no worker
// serves now, if no other worker has done so just now.
func (a *Alerts) notifyUnserved(ctx context.Context) error {
	ok, err := a.store.once(ctx, lookEvery-time.Second, "look", "unserved")
	if err != nil || !ok {
		return err
	}
	found, err := a.client.Unserved(ctx)
	if err != nil {
		return fmt.Errorf("alerts: unserved destinations: %w", err)
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	for _, u := range found {
		if u.SeenAt.IsZero() || now.Sub(u.SeenAt) < unservedAfter {
			continue
		}
		n := unserved{Destination: u.Destination, Since: u.SeenAt, At: now, Backlog: u.Backlog}
		if err := a.noticeOnce(ctx, unservedEvery, "unserved", u.Destination, &notice{Unserved: &n}, now); err != nil {
			return err
		}
	}
	return nil
}

// unservedDestination says that a destination with jobs has no worker.
func (w writer) unservedDestination(u unserved) message {
	t := title{emojiTrouble, ": no worker serves it, and " + jobsWait(u.Backlog)}
	var b sheet
	b.header(t.inTitle(u.Destination))
	b.fields(field{"Since", date(u.Since)}, field{"Jobs waiting", thousands(u.Backlog)})
	b.section("*What happens now:* the other destinations go on. Jobs of " + codeName(u.Destination) +
		" wait until a worker serves it again, or expire. Was it renamed, or left out of the workers' environment?")
	b.commands("To look and to act", []command{
		{"", "tidegate stats --destination " + shellName(u.Destination)},
		{"count those that would be cancelled; without --dry-run they are:", "tidegate cancel --destination " + shellName(u.Destination) + " --dry-run"},
	})
	b.link(w.breakerPage(u.Destination))
	return compose(&b, t.inText(u.Destination), " since ", clock(u.Since, u.At))
}
