package alerts

import (
	"context"
	"fmt"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/jobs"
)

const (
	// unreachableAfter is how long no worker reaches a destination before that is notified.
	unreachableAfter = 30 * time.Second
	// unreachableEvery is how often at most a destination is notified of.
	unreachableEvery = time.Hour
)

// unreached is a destination that none of its workers reaches.
type unreached struct {
	Destination string
	Since, At   time.Time
	Problem     string // of one of the workers
	Workers     int
}

// notifyUnreachable looks for destinations that no worker reaches, if no other worker has
// done so just now.
func (a *Alerts) notifyUnreachable(ctx context.Context) error {
	ok, err := a.store.once(ctx, lookForOverdue-time.Second, "look", "unreachable")
	if err != nil || !ok {
		return err
	}
	workers, err := a.client.Workers(ctx)
	if err != nil {
		return fmt.Errorf("alerts: unreachable destinations: %w", err)
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	for _, destination := range a.o.Destinations {
		u, all := jobs.Unreached(workers, destination)
		if !all || now.Sub(u.Since) < unreachableAfter {
			continue
		}
		n := unreached{Destination: destination, Since: u.Since, At: now, Problem: u.Problem}
		for _, w := range workers {
			if _, ok := w.Unreachable[destination]; ok {
				n.Workers++
			}
		}
		if err := a.noticeOnce(ctx, unreachableEvery, "unreachable", destination, &notice{Unreached: &n}, now); err != nil {
			return err
		}
	}
	return nil
}

// unreachedDestination says that no worker reaches a destination.
func (w writer) unreachedDestination(u unreached) message {
	t := title{emojiTrouble, ": no worker reaches it"}
	var b sheet
	b.header(t.inTitle(u.Destination))
	b.fields(field{"Since", date(u.Since)}, field{"Workers", thousands(u.Workers)})
	b.rich([]slack.RichTextElement{richLine(richBold("Problem: "), richCode(u.Problem, mostReason))}...)
	b.section("*What happens now:* no call is made, so nothing fails: jobs of " + codeName(u.Destination) +
		" wait, one at a time tries, and all go on at the first call that leaves. Look at the API's address, DNS, the proxy, " +
		"certificates and the number of file descriptors.")
	b.commands("To look", []command{
		{"", "tidegate list --destination " + shellName(u.Destination) + " --status pending"},
		{"what a worker says:", "tidegate health"},
	})
	b.link(w.breakerPage(u.Destination))
	return compose(&b, t.inText(u.Destination), " since ", clock(u.Since, u.At), ": ", inert(u.Problem, mostReason))
}
