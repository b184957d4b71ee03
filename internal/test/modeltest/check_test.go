package modeltest

import (
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// check reads what has come of a step.
func (w *world) check() {
	w.settleDown()
	w.steps++
	const unread = 5 // steps at most
	if !w.read(w.steps%unread == 0) {
		return
	}
	if j := w.book.jobs[w.focus]; j != nil && j.first != nil {
		w.book.look(w.client, j, w.purged(j))
	}
}

// read reads all jobs that have not ended, and reports whether it did. Unless that is wanted, it leaves alone
// what has expired, which reading would end: workers are to find some of it.
func (w *world) read(expired bool) bool {
	now := time.Now()
	for _, j := range w.book.list {
		if !expired && j.overdue(now) {
			return false
		}
	}
	for _, j := range w.book.waiting() {
		w.book.get(w.client, j, w.purged(j))
	}
	w.readAt = now
	return true
}

// purged reports whether the retention of a job may be over.
func (w *world) purged(j *seen) bool {
	if !j.status().Final() {
		return time.Since(w.readAt) >= retention
	}
	if j.last.Status == jobs.Completed {
		return time.Since(*j.last.EndedAt) >= retention-time.Second // kept in whole seconds
	}
	return time.Since(*j.last.EndedAt) >= retentionFailed
}

// lookAtAll looks at each job, which ends those whose time is over.
func (w *world) lookAtAll() {
	for _, j := range w.book.list {
		if j.first != nil {
			w.book.look(w.client, j, w.purged(j))
		}
	}
}

// drain lets everything go on until all jobs have ended, and then until their
// retention is over.
func (w *world) drain() {
	for _, p := range w.living() {
		w.killIt(p) // what they hold comes back
	}
	for _, d := range destinations {
		_, err := w.client.ResumeDestination(ctx, d)
		w.must(err)
		w.book.paused[d] = false
		w.book.acting(jobs.ActionResume, "")
		_, err = w.client.ActWhere(ctx, jobs.ActionResume, jobs.Filter{Destination: d})
		w.must(err)
		w.book.acted(jobs.ActionResume, "", 0, jobs.ActResult{})
	}
	fetchers := map[string]*process{}
	for _, q := range queueNames {
		fetchers[q] = w.newProcess(q, 4)
		w.processes = append(w.processes, fetchers[q])
	}
	const rounds = 40
	for range rounds {
		if w.read(true) && len(w.book.waiting()) == 0 {
			break
		}
		w.advance(fetchers)
	}
	w.book.drained()
	w.lookAtAll()
	w.book.census(w.client)
	w.book.healthy(w.rdb)
	beats := 0
	if slices.ContainsFunc(w.book.list, func(j *seen) bool { return len(j.spec.After) > 0 }) {
		beats = 6 // until children have surely been told
	}
	for range beats {
		w.pass(beatEvery)
		for _, q := range queueNames {
			w.beatBy(w.keepers[q])
		}
	}
	w.pass(retentionFailed)
	for _, q := range queueNames {
		w.must(w.keepers[q].sendJanitor())
	}
	for _, key := range w.redis.Keys() {
		for _, j := range w.book.list {
			if strings.Contains(key, j.id) {
				w.t.Fatalf("Nothing is left behind: %s", key)
			}
		}
	}
}

// unblock cancels failed jobs that others of their key may wait behind.
func (w *world) unblock() {
	for _, j := range w.book.list {
		if j.first == nil || j.gone || !w.book.blocks || !j.ordered() || j.status() != jobs.Failed {
			continue
		}
		undone := w.book.acting(jobs.ActionCancel, j.id)
		results, err := w.client.Act(ctx, jobs.ActionCancel, []string{j.id})
		w.must(err)
		w.book.acted(jobs.ActionCancel, j.id, undone, results[0])
		w.book.get(w.client, j, w.purged(j))
	}
}

// advance has each queue do what it does in a few seconds, in which calls succeed.
func (w *world) advance(fetchers map[string]*process) {
	w.unblock()
	for _, l := range w.leased(true) {
		w.recoverBy(w.keepers[l.queue], l.id)
	}
	for _, q := range queueNames {
		w.beatBy(w.keepers[q])
		p := fetchers[q]
		for len(w.fetchBy(p, engine.Grant{}, false)) > 0 {
			for _, h := range p.sortedHands() {
				h.outcome = store.Outcome{Kind: store.KindComplete}
				w.finishBy(p, h, false)
			}
		}
	}
	w.pass(5 * time.Second)
}
