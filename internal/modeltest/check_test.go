package modeltest

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// parkedStates are kept in sets of ours, the others in asynq's.
var parkedStates = []string{
	record.StateFailed, record.StateCancelled, record.StateExpired, record.StatePaused, record.StateWaiting,
	record.StateHeld,
}

// check compares Redis with the model: all of it as it lies there, which changes
// nothing, and a part of it through the client, another one each time.
func (w *world) check() {
	w.settleDown()
	for _, q := range w.allQueues() {
		w.checkPlaces(w.model.queues[q])
	}
	for _, j := range w.model.jobs {
		w.checkRecord(j)
	}
	for _, p := range w.living() {
		for _, h := range p.hands {
			if h.cut != h.toBeCut {
				w.t.Fatalf("the call of %s by %s was cut: %t, want %t", h.id, p, h.cut, h.toBeCut)
			}
		}
	}
	w.steps++
	if len(w.model.sorted((*job).due)) > 0 {
		return // to look would change something: that is a step of its own
	}
	if w.focus != "" {
		w.checkGet(w.focus)
	}
	switch w.steps % 4 {
	case 0:
		w.checkStats(destinations[w.steps/4%len(destinations)])
	case 1:
		w.checkBatch(batches[w.steps/4%len(batches)])
	case 2:
		w.checkList(jobs.Filter{Statuses: []jobs.Status{jobs.Statuses[w.steps/4%len(jobs.Statuses)]}}, 1)
	}
}

// allQueues are all queues in the client's order.
func (w *world) allQueues() (out []string) {
	for _, d := range destinations {
		out = append(out, record.Queues(d)...)
	}
	return out
}

// checkPlaces holds the sets and lists of a queue against the states of its jobs:
// each job is in exactly one place.
func (w *world) checkPlaces(q *queue) {
	m := w.model
	ours := func(state string) map[string]float64 {
		out := map[string]float64{}
		for _, j := range m.inSet(q.name, state) {
			out[j.id] = score(state, j.since)
		}
		return out
	}
	for _, state := range []string{record.StateScheduled, record.StateRetry, record.StateCompleted} {
		w.same(q, state, w.zset("asynq:{"+q.name+"}:"+state), ours(state))
	}
	due := ours(record.StateScheduled)
	maps.Copy(due, ours(record.StateRetry))
	for id := range due {
		due[id] = float64(m.jobs[id].since.UnixMilli())
	}
	w.same(q, "due", w.zset(record.Due(q.name)), due)
	for _, state := range parkedStates {
		w.same(q, state, w.zset(record.Parked(q.name, state)), ours(state))
	}

	line := w.list(record.Pending(q.name))
	slices.Reverse(line)
	w.same(q, "line", line, q.line)
	pending := m.inSet(q.name, record.StatePending)
	for _, j := range pending {
		if !slices.Contains(line, j.id) {
			w.t.Fatalf("%s is pending and not in the line of %s", j.id, q.name)
		}
	}
	ghosts := 0
	if text, err := w.redis.Get(record.Ghosts(q.name)); err == nil {
		ghosts, _ = strconv.Atoi(text)
	}
	w.same(q, "ghosts", ghosts, q.ghosts)
	w.same(q, "dead ids in the line", ghosts, len(line)-len(pending))

	var active []string
	for _, j := range m.inSet(q.name, record.StateActive) {
		active = append(active, j.id)
	}
	slices.Sort(active)
	inHand := w.list(record.Active(q.name))
	slices.Sort(inHand)
	w.same(q, "active", inHand, active)
	w.same(q, "leases", slices.Sorted(maps.Keys(w.zset(record.Lease(q.name)))), active)
	w.checkIndexes(q)
}

func (w *world) checkIndexes(q *queue) {
	m := w.model
	expiry := w.zset(record.Expiry(q.name))
	marked, _ := w.redis.SMembers(record.Marked(q.name)) // a missing set is empty
	byBatch := map[string]map[string]float64{}
	for _, j := range m.jobs {
		if j.queue != q.name {
			continue
		}
		if at, ok := expiry[j.id]; j.waits() && !j.expires.IsZero() && (!ok || at != float64(j.expires.UnixMilli())) {
			w.t.Fatalf("%s is %s and expires at %d; the index says %v, %t", j.id, j.state, j.expires.UnixMilli(), at, ok)
		}
		if j.state == record.StateActive && j.mark != "" && !slices.Contains(marked, j.id) {
			w.t.Fatalf("%s is asked to %s and not among the marked", j.id, j.mark)
		}
		if j.batch != "" {
			if byBatch[j.batch] == nil {
				byBatch[j.batch] = map[string]float64{}
			}
			byBatch[j.batch][j.id] = float64(j.created.UnixMilli())
		}
	}
	for _, b := range batches {
		w.same(q, "batch "+b, w.zset(record.Batch(q.name, b)), byBatch[b])
	}
	w.same(q, "batches", slices.Sorted(maps.Keys(w.zset(record.Batches(q.name)))), slices.Sorted(maps.Keys(byBatch)))
	for id := range expiry {
		if m.get(ref{q.name, id}) == nil {
			w.t.Fatalf("%s is gone and still in the index of expiries of %s", id, q.name)
		}
		if j := m.get(ref{q.name, id}); !j.waits() {
			w.t.Fatalf("%s is %s and still in the index of expiries of %s", id, j.state, q.name)
		}
	}
	outbox := map[string]float64{}
	for id, at := range q.outbox {
		outbox[id] = float64(at.UnixMilli())
	}
	w.same(q, "outbox", w.zset(record.Outbox(q.name)), outbox)
	for _, id := range w.used {
		var want []string
		for c := range q.children[id] {
			want = append(want, c.queue+" "+c.id)
		}
		slices.Sort(want)
		got, _ := w.redis.SMembers(record.Children(q.name, id)) // a missing set is empty
		slices.Sort(got)
		w.same(q, "children of "+id, got, want)
	}
}

// score is a job's in the set of its state.
func score(state string, at time.Time) float64 {
	switch state {
	case record.StateCompleted:
		return float64(at.Unix())
	case record.StateScheduled, record.StateRetry:
		return float64((at.UnixMilli() + 999) / 1000)
	}
	return float64(at.UnixMilli())
}

func (w *world) zset(key string) map[string]float64 {
	out, _ := w.redis.SortedSet(key) // a missing set is empty
	return out
}

// list copies a list: what miniredis returns is its own.
func (w *world) list(key string) []string {
	ids, _ := w.redis.List(key) // a missing list is empty
	return slices.Clone(ids)
}

// same fails unless got and want are the same; nothing is as good as empty.
func (w *world) same(q *queue, what string, got, want any) {
	if g, v := reflect.ValueOf(got), reflect.ValueOf(want); reflect.DeepEqual(got, want) ||
		g.Kind() != reflect.Int && g.Len()+v.Len() == 0 {
		return
	}
	w.t.Fatalf("%s of %s:\n got %v\nwant %v", what, q.name, got, want)
}

// fields is the record of a job, nil if there is none.
func (w *world) fields(r ref) map[string]string {
	key := record.Task(r.queue, r.id)
	names, err := w.redis.HKeys(key)
	if err != nil {
		return nil
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		out[name] = w.redis.HGet(key, name)
	}
	return out
}

func (w *world) checkRecord(j *job) {
	fields := w.fields(j.ref)
	if fields == nil {
		w.t.Fatalf("%s has no record; want it %s", j.id, j.state)
	}
	if fields[record.FieldState] != j.state {
		w.t.Fatalf("%s is %s, want %s", j.id, fields[record.FieldState], j.state)
	}
	for name, want := range map[string]string{
		record.FieldMark: j.mark, record.FieldResume: j.resume, record.FieldGhost: one(j.ghost),
	} {
		if !j.final() && fields[name] != want {
			w.t.Fatalf("field %s of %s is %q, want %q", name, j.id, fields[name], want)
		}
	}
	got, err := jobs.FromRecord(fields)
	w.must(err)
	w.sameJob(j, got)
}

func one(b bool) string {
	if b {
		return "1"
	}
	return ""
}

func (w *world) sameJob(j *job, got *jobs.Job) {
	if j.anyParent && got.LastError != j.problem {
		for _, parent := range j.after {
			if strings.HasPrefix(got.LastError, "parent "+parent+" ") {
				j.problem = got.LastError
			}
		}
	}
	if want := j.asJob(); !reflect.DeepEqual(got, want) {
		w.t.Fatalf("job %s (-want +got):\n%s", j.id, cmp.Diff(want, got))
	}
}

// checkGet compares what Get and History say of a job that is not due.
func (w *world) checkGet(id string) {
	got, err := w.client.Get(ctx, id)
	entries, historyErr := w.client.History(ctx, id)
	j := w.model.jobs[id]
	if j == nil {
		if !errors.Is(err, jobs.ErrNotFound) || !errors.Is(historyErr, jobs.ErrNotFound) {
			w.t.Fatalf("%s is gone: get says %v, history %v", id, err, historyErr)
		}
		return
	}
	w.must(errors.Join(err, historyErr))
	w.sameJob(j, got)
	var history []event
	for _, e := range entries {
		history = append(history, event{e.Version, e.At, e.Status, e.Event, e.By})
	}
	if want := j.asHistory(); !slices.Equal(want, history) {
		w.t.Fatalf("history of %s:\n got %v\nwant %v", id, history, want)
	}
	for i := 2; i < len(history); i++ {
		if history[i].version != history[i-1].version+1 {
			w.t.Fatalf("history of %s has a gap after version %d: %v", id, history[i-1].version, history)
		}
	}
}

// checkBatch and checkStats end jobs whose time is over, as looking does.
func (w *world) checkBatch(name string) {
	for _, q := range w.allQueues() {
		if slices.ContainsFunc(w.model.inQueue(q), func(j *job) bool { return j.batch == name }) {
			w.model.sweep(q, nil)
		}
	}
	got, err := w.client.Batch(ctx, name)
	want := w.model.asBatch(name)
	if want == nil {
		if !errors.Is(err, jobs.ErrNotFound) {
			w.t.Fatalf("batch %s has no jobs: %v", name, err)
		}
		return
	}
	w.must(err)
	if !reflect.DeepEqual(got, want) {
		w.t.Fatalf("batch %s (-want +got):\n%s", name, cmp.Diff(want, got))
	}
}

func (w *world) checkStats(destination string) {
	got, err := w.client.Stats(ctx, destination)
	w.must(err)
	if want := []jobs.DestinationStats{w.model.asStats(destination)}; !reflect.DeepEqual(got, want) {
		w.t.Fatalf("stats of %s (-want +got):\n%s", destination, cmp.Diff(want, got))
	}
}

// checkList pages through the jobs of a filter, none of which is due: each is there
// once.
func (w *world) checkList(f jobs.Filter, limit int) {
	got := map[string]*jobs.Job{}
	for o := (jobs.ListOptions{Filter: f, Limit: limit}); ; {
		page, err := w.client.List(ctx, o)
		w.must(err)
		for _, item := range page.Items {
			if got[item.ID] != nil {
				w.t.Fatalf("list of %+v has %s twice", f, item.ID)
			}
			got[item.ID] = item
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	for _, j := range w.model.matching(f) {
		if got[j.id] == nil {
			w.t.Fatalf("list of %+v misses %s", f, j.id)
		}
		got[j.id].Payload = []byte("null") // lists leave it out
		w.sameJob(j, got[j.id])
		delete(got, j.id)
	}
	for id := range got {
		w.t.Fatalf("list of %+v has %s, which is not meant", f, id)
	}
}

// checkDueList lists the jobs of a filter, which ends those of them whose time is
// over: they are seen as what they are.
func (w *world) checkDueList(f jobs.Filter) {
	page, err := w.client.List(ctx, jobs.ListOptions{Filter: f, Limit: jobs.MaxPage})
	w.must(err)
	for _, item := range page.Items {
		if !item.Status.Final() && item.Status != jobs.Running && item.ExpiredAt(present()) {
			w.t.Fatalf("list of %+v has %s, which is %s although its time is over", f, item.ID, item.Status)
		}
	}
	f.Key = ""
	for _, s := range w.model.sources(f) {
		if f.Batch == "" && slices.Contains(f.Statuses, jobs.Expired) {
			w.model.sweep(s.queue, nil)
		}
		w.model.sweep(s.queue, slices.DeleteFunc(append([]string{}, s.read()...), func(id string) bool {
			j := w.model.jobs[id]
			return f.Batch == "" && j.ghost && len(f.Statuses) > 0 &&
				!slices.Contains(f.Statuses, j.status()) // the line has its id only
		}))
	}
}

// checkAll looks at everything through the client.
func (w *world) checkAll() {
	for _, d := range destinations {
		w.checkStats(d)
	}
	for _, d := range destinations {
		w.checkList(jobs.Filter{Destination: d}, 7)
	}
	for _, b := range batches {
		w.checkBatch(b)
		w.checkList(jobs.Filter{Batch: b}, 2)
	}
	for _, s := range jobs.Statuses {
		w.checkList(jobs.Filter{Statuses: []jobs.Status{s}}, 2)
	}
	for _, id := range w.used {
		w.checkGet(id)
	}
}
