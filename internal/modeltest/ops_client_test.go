package modeltest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

var (
	batches = []string{"b1", "b2"}
	keys    = []string{"k1", "k2"}
)

// someID draws the id of a job that exists, or existed.
func (w *world) someID(t *rapid.T) string { return oneOf(t, "id", w.used...) }

// drawSpec describes a job; an id of "" is for the client to give.
func (w *world) drawSpec(t *rapid.T) *jobs.Spec {
	where := oneOf(t, "where", queueNames...)
	destination, priority, _ := record.ParseQueue(where)
	options := []jobs.Option{jobs.Prioritize(jobs.Priority(priority))}
	add := func(o jobs.Option) { options = append(options, o) }
	switch oneOf(t, "given", "new", "new", "new", "new", "new", "new", "none", "again") {
	case "new":
		w.named++
		add(jobs.ID(fmt.Sprintf("j%02d", w.named)))
	case "again":
		if len(w.used) > 0 {
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
		add(jobs.Delay(delay))
	}
	if b := oneOf(t, "batch", "", "", batches[0], batches[1]); b != "" {
		add(jobs.Batch(b))
	}
	if k := oneOf(t, "key", "", keys[0], keys[1]); k != "" {
		add(jobs.Key(k))
	}
	for range oneOf(t, "parents", 0, 0, 0, 1, 2) {
		if len(w.used) > 0 {
			add(jobs.After(w.someID(t)))
		}
	}
	if n := oneOf(t, "max reschedules", -1, -1, 0, 1, 2); n >= 0 {
		add(jobs.MaxReschedules(n))
	}
	if n := oneOf(t, "retries", 0, 1, 3); n > 0 {
		p := jobs.RetryPolicy{MaxRetries: n, InitialDelaySecs: oneOf(t, "initial", 1, 5), MaxDelaySecs: 20}
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
		if s.ID != "" && !slices.Contains(w.used, s.ID) {
			w.used = append(w.used, s.ID) // the later ones may name it
		}
	}
	results, err := w.client.EnqueueMany(ctx, specs)
	w.must(err)
	meant := make([]*jobs.Spec, n)
	for i, s := range specs {
		clone := *s
		if meant[i] = &clone; s.ID == "" && results[i].Job != nil {
			clone.ID = results[i].Job.ID
			w.used = append(w.used, clone.ID)
		}
		if clone.ID == "" {
			clone.ID = "refused" + strconv.Itoa(i)
		}
		w.focus = clone.ID
	}
	for i, a := range w.model.enqueue(meant) {
		got := results[i]
		switch a {
		case unknownParent:
			if problem, ok := errors.AsType[*jobs.ValidationError](got.Err); !ok || problem.Fields[0].Field != "after" {
				t.Fatalf("enqueue of %s, whose parents %v do not all exist: %+v", meant[i].ID, meant[i].After, got)
			}
			if w.focus == meant[i].ID {
				w.focus = ""
			}
		case again:
			if got.Err == nil {
				t.Fatalf("enqueue of %s, which an earlier one of the call has and that was refused: %+v", meant[i].ID, got.Job)
			}
		case exists, accepted:
			if got.Err != nil || got.Job.Duplicate != (a == exists) {
				t.Fatalf("enqueue of %s: %+v, %v; want duplicate: %t", meant[i].ID, got.Job, got.Err, a == exists)
			}
			got.Job.Duplicate = false
			if a == accepted {
				got.Job.Retry = w.model.jobs[meant[i].ID].asJob().Retry // triggers are written out
			}
			w.sameJob(w.model.jobs[meant[i].ID], got.Job)
		}
	}
	released := 0
	for _, s := range meant {
		if j := w.model.jobs[s.ID]; j != nil && len(s.After) > 0 && j.state == record.StatePending {
			released++
		}
	}
	if released > 1 {
		w.adoptOrder()
	}
	t.Logf("enqueued %s", ids(meant))
}

// adoptOrder takes over the order in the lines: jobs of one call whose parents have
// completed already are released in any order.
func (w *world) adoptOrder() {
	for _, q := range w.model.queues {
		line := w.list(record.Pending(q.name))
		slices.Reverse(line)
		if slices.Equal(slices.Sorted(slices.Values(line)), slices.Sorted(slices.Values(q.line))) {
			q.line = line
		}
	}
}

func ids(specs []*jobs.Spec) (out []string) {
	for _, s := range specs {
		out = append(out, s.ID)
	}
	return out
}

var actions = []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionRetry, jobs.ActionExpire}

// act does something to a job, or to some of one queue.
func (w *world) act(a jobs.Action) func(t *rapid.T) {
	return func(t *rapid.T) {
		chosen := []string{w.someID(t)}
		queue := ""
		if j := w.model.jobs[chosen[0]]; j != nil {
			queue = j.queue
		}
		for range oneOf(t, "more", 0, 0, 0, 1, 3) {
			id := w.someID(t)
			if j := w.model.jobs[id]; (j == nil || j.queue == queue) && !slices.Contains(chosen, id) {
				chosen = append(chosen, id)
			}
		}
		w.focus = chosen[0]
		o := order{action: a, by: "tester", reason: oneOf(t, "reason", "", "no need")}
		t.Logf("%s %v", a, chosen)
		results, err := w.client.Act(ctx, a, chosen, jobs.By(o.by), jobs.Because(o.reason))
		w.must(err)
		verdicts := make([]verdict, len(chosen))
		if queue != "" {
			verdicts = w.model.act(o, queue, chosen)
			w.model.tellFrom(queue)
		}
		for i, v := range verdicts {
			r := results[i]
			switch {
			case r.ID != chosen[i] || r.Done != v.done || r.Asked != v.asked || r.Status != v.status:
				t.Fatalf("%s %s: %+v, want %+v", a, chosen[i], r, v)
			case v.refused != errors.Is(r.Err, jobs.ErrStatus), (v == verdict{}) != errors.Is(r.Err, jobs.ErrNotFound):
				t.Fatalf("%s %s: error %v, want %+v", a, chosen[i], r.Err, v)
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

// actWhere does something to all jobs of a filter.
func (w *world) actWhere(t *rapid.T) {
	a, f := oneOf(t, "action", actions...), drawFilter(t)
	t.Logf("%s where %+v", a, f)
	count, err := w.client.CountWhere(ctx, a, f)
	w.must(err)
	if want := w.model.countWhere(a, f); count != want {
		t.Fatalf("count %s where %+v: %d, want %d", a, f, count, want)
	}
	sum, err := w.client.ActWhere(ctx, a, f, jobs.By("tester"))
	w.must(err)
	if want := w.model.actWhere(order{action: a, by: "tester"}, f); sum != want {
		t.Fatalf("%s where %+v: %+v, want %+v", a, f, sum, want)
	}
}

// pauseDestination stops a destination, or lets it go on.
func (w *world) pauseDestination(pause bool) func(t *rapid.T) {
	call := w.client.ResumeDestination
	if pause {
		call = w.client.PauseDestination
	}
	return func(t *rapid.T) {
		d := oneOf(t, "destination", destinations...)
		changed, err := call(ctx, d)
		w.must(err)
		want := false
		for _, q := range record.Queues(d) {
			want = want || w.model.queues[q].paused != pause
			w.model.queues[q].paused = pause
		}
		if changed != want {
			t.Fatalf("pause %s: %t changed %t, want %t", d, pause, changed, want)
		}
	}
}

func (w *world) anyPaused() bool {
	return slices.ContainsFunc(queueNames, func(q string) bool { return w.model.queues[q].paused })
}

// look reads through the client, also where the time of jobs is over: that ends
// them.
func (w *world) look(t *rapid.T) {
	switch oneOf(t, "look", "get", "list", "batch", "stats") {
	case "get":
		id := w.someID(t)
		if j := w.model.jobs[id]; j != nil && j.due() {
			w.model.sweep(j.queue, []string{id})
		}
		w.checkGet(id)
	case "list":
		f := drawFilter(t)
		if w.checkDueList(f); len(w.model.sorted((*job).due)) == 0 {
			w.checkList(f, 2)
		}
	case "batch":
		w.checkBatch(oneOf(t, "batch", batches...))
	case "stats":
		w.checkStats(oneOf(t, "destination", destinations...))
	}
}

// passTime lets a while pass, often until just before, at, or just after the instant
// for which something waits.
func (w *world) passTime(t *rapid.T) {
	var instants []time.Time
	for _, j := range w.model.jobs {
		for _, at := range []time.Time{j.available, j.expires} {
			if at.After(present()) && !j.final() {
				instants = append(instants, at)
			}
		}
	}
	for _, q := range queueNames {
		for _, until := range w.zset(record.Lease(q)) {
			instants = append(instants, time.Unix(int64(until), 0).UTC().Add(graceFor))
		}
	}
	if len(instants) == 0 || oneIn(t, 2, "a while") {
		w.pass(seconds(oneOf(t, "seconds", 0.1, 1, 1, 3, 10, 31, 61, 61, 130)))
		return
	}
	slices.SortFunc(instants, time.Time.Compare)
	instants = slices.Compact(instants)
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
func (w *world) wantsJobs() bool {
	return len(w.model.sorted(func(j *job) bool { return !j.final() })) < 4
}

func (w *world) hasJobs() bool { return len(w.used) > 0 }
