package alerts

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/store"
)

// evictionQuiet is how long Redis must have dropped no key before an incident of that is over.
const evictionQuiet = time.Minute

// evictions is what the workers know in common of the keys that Redis drops.
type evictions struct {
	// Seen is true for a record that was written: the first one is what later ones are compared with.
	Seen bool `json:"seen"`
	// Count is how many keys Redis had dropped at the last look, GrewAt when it was seen to grow last.
	Count  int64     `json:"count"`
	GrewAt time.Time `json:"grew_at,omitzero"`
	// ID is that of the present incident, "" if there is none. Since is when it began, Ended when it
	// was over, until that is notified; Dropped counts the keys that were dropped in it.
	ID      string    `json:"id,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Dropped int64     `json:"dropped,omitempty"`
	// Notified is true once the notice of its beginning is enqueued.
	Notified bool `json:"notified,omitempty"`
}

// see takes in what Redis said at now. It begins an incident if Redis may drop keys or has dropped
// some since the last look, and ends it when neither is true any more.
func (r *evictions) see(e store.Eviction, now time.Time, id string) {
	if !r.Seen {
		*r = evictions{Seen: true, Count: e.Evicted}
	}
	grew := max(0, e.Evicted-r.Count) // it begins anew with Redis
	r.Count = e.Evicted
	if grew > 0 {
		r.GrewAt = now
	}
	switch {
	case !r.Ended.IsZero():
	case r.ID != "":
		r.Dropped += grew
		if !e.May() && now.Sub(r.GrewAt) >= evictionQuiet {
			r.Ended = now
		}
	case e.May() || grew > 0:
		r.ID, r.Since, r.Dropped = id, now, grew
	}
}

func (s stateStore) evictionsKey() string { return s.key("evictions") }

// notifyEviction notifies when Redis may drop keys, or drops some, and when it keeps them again.
func (a *Alerts) notifyEviction(ctx context.Context) error {
	e, err := a.eviction(ctx)
	if _, refused := errors.AsType[redis.Error](err); refused || err == nil && e.Policy == "" {
		return nil // it is not permitted to know
	}
	if err != nil {
		return err
	}
	now, err := a.now(ctx)
	if err != nil {
		return err
	}
	id := a.noticeID("redis-evicts-" + timeID(now))
	r, err := change(ctx, a.store, a.store.evictionsKey(), func(r *evictions) (bool, error) {
		was := *r
		if !r.Seen {
			*r = a.evicted // Redis may have dropped the record, too
		}
		r.see(e, now, id)
		return *r != was, nil
	})
	if err != nil {
		return err
	}
	if r.ID == "" {
		a.evicted = *r
		return nil
	}
	about := eviction{Since: r.Since, Ended: r.Ended, At: now, Dropped: r.Dropped, Total: e.Evicted}
	if e.May() {
		about.Policy = e.Policy
	}
	if !r.Notified {
		begins := about
		begins.Ended = time.Time{}
		if err := a.send(ctx, a.evictionTriggers(singleJob{ID: r.ID, Eviction: &begins})); err != nil {
			return err
		}
	}
	if !r.Ended.IsZero() {
		if err := a.send(ctx, a.evictionTriggers(singleJob{ID: r.ID + "-over", Ends: r.ID, Eviction: &about})); err != nil {
			return err
		}
	}
	done := *r
	r, err = change(ctx, a.store, a.store.evictionsKey(), func(r *evictions) (bool, error) {
		if *r != done {
			return false, nil // another worker has seen more: it notifies of the same, by the same ids
		}
		r.Notified = true
		if !r.Ended.IsZero() {
			*r = evictions{Seen: true, Count: r.Count, GrewAt: r.GrewAt}
		}
		return *r != done, nil
	})
	if err != nil {
		return err
	}
	a.evicted = *r
	return nil
}

// evictionTriggers are the jobs of a notice for all notifiers: lost jobs are urgent.
func (a *Alerts) evictionTriggers(s singleJob) []trigger {
	var out []trigger
	for _, n := range a.o.Notifiers {
		out = append(out, a.singleTrigger(s.ID, n.Name(), s))
	}
	return out
}

// evictionOver reports whether the incident of a notice has ended.
func (a *Alerts) evictionOver(ctx context.Context, id string) (bool, error) {
	r, _, err := load[evictions](ctx, a.store, a.store.evictionsKey())
	return err == nil && r.Seen && r.ID != id, err
}

// eviction is a time in which Redis may drop keys, or does.
type eviction struct {
	Since, Ended time.Time // Ended zero: it still lasts
	At           time.Time
	Policy       string // "" if Redis keeps its keys now
	Dropped      int64  // within that time
	Total        int64  // since the start of Redis
}

func (o *eviction) compose(composer) *notice.Notice {
	title := "Redis may drop jobs when its memory is full"
	if o.Dropped > 0 || o.Total > 0 {
		title = "Redis has dropped " + count(int(max(o.Dropped, o.Total)), "key", "keys") + ", and jobs may be among them"
	}
	n := single("", "Redis drops keys", iconTrouble, o.At, title)
	n.Severity = notice.Critical
	lost := act("what is missing, as far as it can be known:", "tidegate doctor --dry-run")
	enqueue := " Compare with the records of your producers which jobs are gone, and enqueue them again with the same ids."
	if !o.Ended.IsZero() {
		n.Kind, n.Attention = notice.Resolved, true
		n.Title = notice.Title{Icon: iconGood, Rest: plain("Redis keeps its keys again after " + span(o.Ended.Sub(o.Since)))}
		now := " a full Redis refuses new jobs, which producers see, and loses none."
		if o.Dropped > 0 {
			now += enqueue
		}
		n.Body = []notice.Block{
			facts(when("From", o.Since), when("To", o.Ended), number("Keys dropped", int(o.Dropped))),
			paragraph(notice.Bold("Now:"), now),
			commands(look, []notice.Command{lost}),
		}
		n.Summary = join("Redis keeps its keys again; "+count(int(o.Dropped), "key", "keys")+" dropped since ", notice.Time(o.Since))
		return n
	}
	list := []notice.Fact{when("Since", o.Since), number("Keys dropped since the start of Redis", int(o.Total))}
	what := []notice.Command{lost}
	happens := " the policy keeps all keys by now."
	if o.Policy != "" {
		list = append(list, notice.Fact{Name: "maxmemory-policy", Value: notice.Text{notice.Quote(o.Policy, notice.MaxBy)}})
		happens = " when its memory is full, Redis drops jobs, leases and breakers without an error, until its policy is noeviction." +
			" Then a full Redis refuses new jobs, which producers see, and loses none."
		what = append([]notice.Command{act("keep all keys; set it in the configuration file, too:", "redis-cli CONFIG SET maxmemory-policy noeviction")}, what...)
	}
	if o.Total > 0 {
		happens += enqueue
	}
	n.Body = []notice.Block{facts(list...), paragraph(notice.Bold("What happens now:"), happens), commands(lookAndAct, what)}
	n.Summary = plain(title)
	if o.Policy != "" {
		n.Summary = join(title+": its maxmemory-policy is ", notice.Foreign(o.Policy, notice.MaxBy))
	}
	return n
}
