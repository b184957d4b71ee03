package modeltest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// check looks at what the race has left behind.
func (r *race) check() {
	found := map[string]*jobs.Job{}
	for _, d := range destinations {
		for _, q := range record.Queues(d) {
			r.checkQueue(q, found)
		}
	}
	counts := map[jobs.Status]int{}
	calls := 0
	for _, id := range r.ids {
		j, seen := found[id], r.jobs[id]
		if j == nil {
			r.t.Errorf("%s was accepted and is gone", id)
			continue
		}
		counts[j.Status]++
		calls += seen.calls
		r.checkEnd(j, seen)
		r.checkHistory(j)
		delete(found, id)
	}
	for id := range found {
		r.t.Errorf("%s is there, and nobody has enqueued it", id)
	}
	r.checkCounts(counts)
	r.t.Logf("%d jobs, %d calls, asked %v, %d trips, up to %d held, ended %v", len(r.ids), calls, r.asked, r.trips, r.held, counts)
	if calls == 0 || counts[jobs.Completed] == 0 || counts[jobs.Cancelled] == 0 || counts[jobs.Failed] == 0 || r.keyed && r.held == 0 {
		r.t.Error("that was no race")
	}
}

// checkQueue holds the places of a queue, of which nothing runs or waits any more,
// against its records, and adds these to found.
func (r *race) checkQueue(queue string, found map[string]*jobs.Job) {
	rdb := r.rdb
	places := map[string][]string{} // id → where it is
	put := func(where string, ids []string) {
		for _, id := range ids {
			places[id] = append(places[id], where)
		}
	}
	for _, state := range parkedStates {
		put(state, rdb.ZRange(ctx, record.Parked(queue, state), 0, -1).Val())
	}
	for _, pattern := range []string{"held:*", "heldkeys"} {
		if left := rdb.Keys(ctx, strings.NewReplacer("{", `\{`, "}", `\}`).Replace("tidegate:{"+queue+"}:")+pattern).Val(); len(left) > 0 {
			r.t.Errorf("nothing is held any more, and there are %v", left)
		}
	}
	put(record.StateCompleted, rdb.ZRange(ctx, record.Completed(queue), 0, -1).Val())
	put(record.StateScheduled, rdb.ZRange(ctx, record.Scheduled(queue), 0, -1).Val())
	put(record.StateRetry, rdb.ZRange(ctx, record.Retry(queue), 0, -1).Val())
	put(record.StateActive, rdb.LRange(ctx, record.Active(queue), 0, -1).Val())
	for _, key := range []string{record.Lease(queue), record.Outbox(queue), record.Due(queue)} {
		if left := rdb.ZRange(ctx, key, 0, -1).Val(); len(left) > 0 {
			r.t.Errorf("%s still has %v", key, left)
		}
	}
	prefix := record.TaskPrefix(queue)
	pattern := strings.NewReplacer("{", `\{`, "}", `\}`).Replace(prefix) + "*"
	batch := map[string][]string{}
	for _, key := range rdb.Keys(ctx, pattern).Val() {
		fields := rdb.HGetAll(ctx, key).Val()
		j, err := jobs.FromRecord(fields)
		if err != nil {
			r.t.Error(err)
			continue
		}
		if want := []string{fields[record.FieldState]}; !slices.Equal(places[j.ID], want) {
			r.t.Errorf("%s of %s is %v, and it is in %v", j.ID, queue, want, places[j.ID])
		}
		delete(places, j.ID)
		found[j.ID] = j
		if j.Batch != "" {
			batch[j.Batch] = append(batch[j.Batch], j.ID)
		}
	}
	for id, where := range places {
		r.t.Errorf("%s has no record, and it is in %v of %s", id, where, queue)
	}
	// Nothing is pending: what stands in the line are ghosts.
	line, _ := rdb.LLen(ctx, record.Pending(queue)).Result() // a missing list is empty
	ghosts, _ := strconv.ParseInt(rdb.Get(ctx, record.Ghosts(queue)).Val(), 10, 64)
	if line != ghosts {
		r.t.Errorf("%d ids in the line of %s, where no job is pending, and %d ghosts", line, queue, ghosts)
	}
	for _, b := range batches {
		got := rdb.ZRange(ctx, record.Batch(queue, b), 0, -1).Val()
		slices.Sort(got)
		want := batch[b]
		slices.Sort(want)
		if !slices.Equal(got, want) {
			r.t.Errorf("batch %s of %s has %v, want %v", b, queue, got, want)
		}
	}
	if left := rdb.Keys(ctx, strings.NewReplacer("{", `\{`, "}", `\}`).Replace("tidegate:{"+queue+"}:children:")+"*").Val(); len(left) > 0 {
		r.t.Errorf("children that were not told: %v", left)
	}
}

// checkEnd holds a job's end against what was done to it.
func (r *race) checkEnd(j *jobs.Job, seen *raced) {
	bad := func(what string) {
		r.t.Errorf("%s ended as %s (%q): %s; it was %+v", j.ID, j.Status, j.LastError, what, *seen)
	}
	if seen.succeeded > 1 {
		bad("it succeeded twice")
	}
	if (seen.succeeded > 0) != (j.Status == jobs.Completed) {
		bad("it is to be completed if and only if a call succeeded")
	}
	switch j.Status {
	case jobs.Failed:
		if putOff := strings.HasPrefix(j.LastError, "max reschedules "); seen.calls == 0 && !(r.keyed && putOff) {
			bad("it was never called")
		}
	case jobs.Cancelled:
		if !strings.HasPrefix(j.LastError, "parent ") && r.asked[jobs.ActionCancel] == 0 {
			bad("nobody cancelled it")
		}
		if strings.HasPrefix(j.LastError, "parent ") && len(seen.after) == 0 {
			bad("it has no parents")
		}
	case jobs.Expired:
		if j.ExpiresAt == nil && r.asked[jobs.ActionExpire] == 0 {
			bad("it never expires")
		}
	case jobs.Completed:
	default:
		bad("that is no end")
	}
	if j.Retry != nil && j.Attempt > j.Retry.MaxRetries || j.Retry == nil && j.Attempt > 0 {
		bad("it was retried too often: " + strconv.Itoa(j.Attempt))
	}
	if j.MaxReschedules != nil && j.RescheduleCount > *j.MaxReschedules {
		bad("it was put off too often: " + strconv.Itoa(j.RescheduleCount))
	}
	if j.Crashes != 0 {
		bad("nothing has crashed")
	}
}

func (r *race) checkHistory(j *jobs.Job) {
	h, err := r.client.History(ctx, j.ID)
	if err != nil {
		r.t.Error(err)
		return
	}
	if h[0].Event != "created" || h[len(h)-1].Status != j.Status {
		r.t.Errorf("history of %s, which is %s: %+v", j.ID, j.Status, h)
	}
	for i := 2; i < len(h); i++ {
		if h[i].Version != h[i-1].Version+1 {
			r.t.Errorf("history of %s has a gap: %+v", j.ID, h)
		}
	}
}

// checkCounts compares what the client counts with the records.
func (r *race) checkCounts(want map[jobs.Status]int) {
	got := map[jobs.Status]int{}
	stats, err := r.client.Stats(ctx, "")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range stats {
		for status, n := range s.Counts {
			got[status] += n
		}
	}
	for _, s := range jobs.Statuses {
		if got[s] != want[s] {
			r.t.Errorf("stats count %d %s, there are %d", got[s], s, want[s])
		}
	}
	for _, name := range batches {
		n := 0
		for _, j := range r.jobs {
			if j.batch == name {
				n++
			}
		}
		b, err := r.client.Batch(ctx, name)
		if err != nil || b.Total != n || !b.Done {
			r.t.Errorf("batch %s, of %d jobs that all have ended: %+v, %v", name, n, b, err)
		}
	}
}
