package modeltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/jobs"
)

var (
	batches = []string{"b1", "b2"}
	keys    = []string{"k1", "k2"}
)

// someID draws the id of a job that exists, or existed.
func (w *world) someID(t *rapid.T) string { return oneOf(t, "id", w.book.list...).id }

// drawSpec describes a job; an id of "" is for the client to give.
func (w *world) drawSpec(t *rapid.T) *jobs.Spec {
	where := oneOf(t, "where", queueNames...)
	destination, priority, _ := store.ParseQueue(where)
	options := []jobs.Option{jobs.Prioritize(jobs.Priority(priority))}
	add := func(o jobs.Option) { options = append(options, o) }
	switch oneOf(t, "given", "new", "new", "new", "new", "new", "new", "none", "again") {
	case "new":
		w.named++
		add(jobs.ID(fmt.Sprintf("j%02d", w.named)))
	case "again":
		if len(w.book.list) > 0 {
			add(jobs.ID(w.someID(t)))
		}
	}
	switch n := oneOf(t, "ttl", -1, -1, -1, -1, -1, -1, -1, 0, 500, 3000, 10000, 40000); {
	case n >= 0 && oneIn(t, 2, "as instant"):
		add(jobs.ExpiresAt(time.Now().Add(time.Duration(n) * time.Millisecond)))
	case n >= 0:
		add(jobs.TTL(time.Duration(n) * time.Millisecond))
	}
	switch delay := seconds(oneOf(t, "delay", 0, 0, 0, 0, 0, 0.5, 1, 5, 30)); {
	case delay > 0 && oneIn(t, 2, "at"):
		add(jobs.At(time.Now().Add(delay)))
	case delay > 0:
		add(delayed(delay))
	}
	if b := oneOf(t, "batch", "", "", batches[0], batches[1]); b != "" {
		add(jobs.Batch(b))
	}
	if k := oneOf(t, "key", "", keys[0], keys[1]); k != "" {
		add(jobs.Key(k))
	}
	for range oneOf(t, "parents", 0, 0, 0, 1, 2) {
		if len(w.book.list) > 0 {
			add(jobs.After(w.someID(t)))
		}
	}
	if n := oneOf(t, "max reschedules", -1, -1, 0, 1, 2); n >= 0 {
		add(jobs.MaxReschedules(n))
	}
	if n := oneOf(t, "retries", 0, 1, 3); n > 0 {
		p := jobs.RetryPolicy{MaxRetries: n, InitialDelay: time.Duration(oneOf(t, "initial", 1, 5)) * time.Second, MaxDelay: 20 * time.Second}
		if oneIn(t, 2, "on timeout only") {
			p.RetryOn = []jobs.Trigger{jobs.OnTimeout}
		}
		add(jobs.Retry(p))
	}
	s := jobs.New(destination, nil, options...)
	s.After = slices.DeleteFunc(s.After, func(id string) bool { return id == s.ID })
	return s
}

// enqueue enqueues one to four jobs in one call.
func (w *world) enqueue(t *rapid.T) {
	n := oneOf(t, "jobs", 1, 1, 1, 2, 4)
	var specs []*jobs.Spec
	for range n {
		s := w.drawSpec(t)
		specs = append(specs, s)
		if s.ID != "" && w.book.jobs[s.ID] == nil {
			w.book.meant(s) // the later ones may name it
		}
	}
	given := make([]string, n)
	there := map[string]bool{} // parents that were surely there before
	for i, s := range specs {
		given[i] = s.ID
		for _, id := range s.After {
			there[id] = !w.missing(id)
		}
	}
	results, err := w.client.EnqueueMany(ctx, specs)
	w.must(err)
	for _, duplicate := range []bool{false, true} { // of two with one id either may be it
		for i, r := range results {
			if r.Err == nil && r.Job.Duplicate == duplicate {
				w.enqueued(specs[i], given, i, r.Job)
			}
		}
	}
	for i, r := range results {
		if r.Err != nil {
			orphan := slices.ContainsFunc(specs[i].After, func(id string) bool {
				return !there[id] && (!slices.Contains(given[:i], id) || w.missing(id))
			})
			w.refused(specs[i], r.Err, orphan, slices.Index(given, given[i]) == i && !slices.Contains(given[i+1:], given[i]))
		}
	}
	t.Logf("enqueued %q", given)
}

// missing reports whether a parent is not there, or need not be.
func (w *world) missing(id string) bool {
	p := w.book.jobs[id]
	return p.first == nil || p.gone || w.purged(p)
}

// enqueued holds the acceptance of job i of a call, with the ids that it gave, against
// the invariants.
func (w *world) enqueued(s *jobs.Spec, given []string, i int, got *jobs.Job) {
	w.focus = got.ID
	j := w.book.jobs[given[i]]
	if j != nil && !got.Duplicate && j.first != nil && w.purged(j) {
		j.gone = true
	}
	switch there := j != nil && j.first != nil && !j.gone; {
	case got.Duplicate != there:
		w.t.Fatalf("Enqueued once: %s, duplicate: %t, there before: %t", got.ID, got.Duplicate, there)
	case there:
		got.Duplicate = false
		w.book.read(got)
		return
	}
	for _, id := range s.After {
		if p := w.book.jobs[id]; (p.first == nil || p.gone) && !slices.Contains(given, id) {
			w.t.Fatalf("Parents first: %s was accepted, and there is no parent %s", got.ID, id)
		}
	}
	if j == nil || j.first != nil {
		j = w.book.meant(withID(s, got.ID))
	}
	j.spec = withID(s, got.ID)
	j.disturbed = disturbs(s)
	w.book.accepted(j, got)
}

func withID(s *jobs.Spec, id string) *jobs.Spec {
	clone := *s
	clone.ID = id
	return &clone
}

// refused fails unless there was a reason to refuse a job: one of its parents may have
// been missing, or another job of the call had its id.
func (w *world) refused(s *jobs.Spec, err error, orphan, alone bool) {
	problem, ok := errors.AsType[*jobs.ValidationError](err)
	if ok && problem.Fields[0].Field == "after" && orphan || !ok && !alone {
		return
	}
	w.t.Fatalf("Never lost: %s was refused: %v", s.ID, err)
}

var actions = []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionRetry, jobs.ActionExpire}

// act does something to a job, or to some.
func (w *world) act(a jobs.Action) func(t *rapid.T) {
	return func(t *rapid.T) {
		chosen := []string{w.someID(t)}
		for range oneOf(t, "more", 0, 0, 0, 1, 3) {
			if id := w.someID(t); !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		w.focus = chosen[0]
		t.Logf("%s %v", a, chosen)
		undone := make([]int, len(chosen))
		for i, id := range chosen {
			undone[i] = w.book.acting(a, id)
		}
		results, err := w.client.Act(ctx, a, chosen, jobs.By("tester"), jobs.Because(oneOf(t, "reason", "", "no need")))
		w.must(err)
		for i, r := range results {
			j := w.book.jobs[chosen[i]]
			w.book.acted(a, j.id, undone[i], r)
			lost := errors.Is(r.Err, jobs.ErrNotFound)
			if j.gone = j.gone || lost && j.first != nil && w.purged(j); lost != (j.first == nil || j.gone) {
				t.Fatalf("Never lost: %s %s: %+v, gone: %t", a, j.id, r, j.gone)
			}
			if r.Err == nil && !r.Done && !r.Asked {
				t.Fatalf("%s %s: %+v says nothing", a, j.id, r)
			}
		}
	}
}

// drawFilter never draws the one that selects everything.
func drawFilter(t *rapid.T) jobs.Filter {
	f := jobs.Filter{
		Destination: oneOf(t, "destination", append([]string{"", ""}, destinations...)...),
		Key:         oneOf(t, "key", "", "", keys[0]),
		Batch:       oneOf(t, "batch", "", batches[0], batches[1]),
	}
	for range oneOf(t, "statuses", 0, 1, 1, 2) {
		if s := oneOf(t, "status", jobs.Statuses...); !slices.Contains(f.Statuses, s) {
			f.Statuses = append(f.Statuses, s)
		}
	}
	if f.Destination == "" && f.Key == "" && f.Batch == "" && len(f.Statuses) == 0 {
		f.Destination = destinations[0]
	}
	return f
}

// matches reports whether a filter may select the job, whatever its status.
func matches(f jobs.Filter, j *seen) bool {
	return (f.Destination == "" || f.Destination == j.spec.Destination) && (f.Key == "" || f.Key == j.spec.Key) &&
		(f.Batch == "" || f.Batch == j.spec.Batch)
}

// actable are the statuses in which a job that waits can be stopped.
var actable = []jobs.Status{jobs.Waiting, jobs.Pending, jobs.RetryPending, jobs.Paused}

// actWhere does something to all jobs of a filter. A stop reaches all of them.
func (w *world) actWhere(t *rapid.T) {
	a, f := oneOf(t, "action", actions...), drawFilter(t)
	t.Logf("%s where %+v", a, f)
	fresh := w.read(false)
	var reached []*seen
	for _, j := range w.book.list {
		if j.first == nil || j.gone || !matches(f, j) {
			continue
		}
		if s := j.status(); fresh && !undoes[a] && slices.Contains(actable, s) && (len(f.Statuses) == 0 || slices.Contains(f.Statuses, s)) {
			reached = append(reached, j)
		}
		w.book.acting(a, j.id)
		w.book.acted(a, j.id, -1, jobs.ActResult{})
	}
	count, err := w.client.CountWhere(ctx, a, f)
	w.must(err)
	sum, err := w.client.ActWhere(ctx, a, f, jobs.By("tester"))
	w.must(err)
	if count > sum.Done+sum.Asked+sum.Refused {
		t.Fatalf("%s where %+v: %+v, and the dry run counted %d", a, f, sum, count)
	}
	for _, j := range reached {
		w.book.look(w.client, j, w.purged(j))
		if s := j.status(); !j.gone && !s.Final() && (a != jobs.ActionPause || s != jobs.Paused) {
			t.Fatalf("A stop holds: %s is %s after %s where %+v", j.id, s, a, f)
		}
	}
}

// pauseDestination stops a destination, or lets it go on.
func (w *world) pauseDestination(pause bool) func(t *rapid.T) {
	call := w.client.ResumeDestination
	if pause {
		call = func(ctx context.Context, name string) (bool, error) { return w.client.PauseDestination(ctx, name) }
	}
	return func(t *rapid.T) {
		d := oneOf(t, "destination", destinations...)
		changed, err := call(ctx, d)
		w.must(err)
		if changed != (w.book.paused[d] != pause) {
			t.Fatalf("pause %s: %t changed %t", d, pause, changed)
		}
		w.book.paused[d] = pause
	}
}

func (w *world) anyPaused() bool {
	return slices.ContainsFunc(destinations, func(d string) bool { return w.book.paused[d] })
}

// look reads through the client, also where the time of jobs is over: that ends them.
func (w *world) look(t *rapid.T) {
	if oneIn(t, 4, "all") { // it is much of the work
		w.lookAtAll()
		w.book.census(w.client)
		return
	}
	page, err := w.client.List(ctx, jobs.ListOptions{Filter: drawFilter(t), Limit: jobs.MaxPage})
	w.must(err)
	for _, item := range page.Items {
		if !item.Status.Final() && item.Status != jobs.Running && item.ExpiredAt(time.Now()) {
			t.Fatalf("Expired jobs never start: %s is listed as %s although its time is over", item.ID, item.Status)
		}
		w.book.read(item)
	}
}

// passTime lets a while pass, often until just before, at, or just after the instant
// for which something waits.
func (w *world) passTime(t *rapid.T) {
	var instants []time.Time
	for _, j := range w.book.waiting() {
		instants = append(instants, j.notBefore)
		if j.last != nil && j.last.ExpiresAt != nil {
			instants = append(instants, *j.last.ExpiresAt)
		}
	}
	for _, l := range w.leases() {
		instants = append(instants, l.until.Add(graceFor))
	}
	now := time.Now()
	instants = slices.DeleteFunc(instants, func(at time.Time) bool { return !at.After(now) })
	if len(instants) == 0 || oneIn(t, 2, "a while") {
		w.pass(seconds(oneOf(t, "seconds", 0.1, 1, 1, 3, 10, 31, 61, 61, 130)))
		return
	}
	slices.SortFunc(instants, time.Time.Compare)
	instants = slices.CompactFunc(instants, time.Time.Equal)
	at := oneOf(t, "instant", instants[:min(3, len(instants))]...)
	at = at.Add(oneOf(t, "ms", 0, -time.Millisecond, time.Millisecond))
	if d := time.Until(at); d > 0 {
		w.pass(d)
	}
}

// clientOps are what the users of the client do.
func (w *world) clientOps() []op {
	return []op{
		{5, "enqueue", w.wantsJobs, w.enqueue},
		{1, "enqueue more", always, w.enqueue},
		{1, "cancel", w.hasJobs, w.act(jobs.ActionCancel)},
		{2, "pause", w.hasJobs, w.act(jobs.ActionPause)},
		{2, "resume", w.hasJobs, w.act(jobs.ActionResume)},
		{2, "retry", w.hasJobs, w.act(jobs.ActionRetry)},
		{1, "expire", w.hasJobs, w.act(jobs.ActionExpire)},
		{1, "act where", w.hasJobs, w.actWhere},
		{1, "pause destination", w.hasJobs, w.pauseDestination(true)},
		{4, "resume destination", w.anyPaused, w.pauseDestination(false)},
		{1, "look", w.hasJobs, w.look},
		{5, "pass time", w.hasJobs, w.passTime},
	}
}

func always() bool { return true }

// wantsJobs keeps sequences at the lives of a few jobs.
func (w *world) wantsJobs() bool { return len(w.book.waiting()) < 4 }

func (w *world) hasJobs() bool { return len(w.book.list) > 0 }
