package modeltest

import (
	"maps"
	"slices"

	"github.com/tidegate/tidegate/internal/record"
	"github.com/tidegate/tidegate/jobs"
)

// actable are the statuses in which an action does something.
var actable = map[jobs.Action][]jobs.Status{
	jobs.ActionCancel: {jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending, jobs.Paused},
	jobs.ActionPause:  {jobs.Waiting, jobs.Pending, jobs.Running, jobs.RetryPending},
	jobs.ActionResume: {jobs.Paused, jobs.Running},
	jobs.ActionRetry:  {jobs.Failed, jobs.Cancelled},
	jobs.ActionExpire: {jobs.Waiting, jobs.Pending, jobs.RetryPending, jobs.Paused},
}

// narrow leaves of the statuses of a filter those that the action can be for, and
// returns their states.
func narrow(a jobs.Action, f jobs.Filter) (narrowed jobs.Filter, states []string) {
	narrowed = f
	narrowed.Statuses = nil
	for _, s := range actable[a] {
		if len(f.Statuses) == 0 || slices.Contains(f.Statuses, s) {
			narrowed.Statuses = append(narrowed.Statuses, s)
		}
	}
	for state, s := range statusOf {
		if slices.Contains(narrowed.Statuses, s) {
			states = append(states, state)
		}
	}
	return narrowed, states
}

func (m *model) countWhere(a jobs.Action, f jobs.Filter) int {
	narrowed, _ := narrow(a, f)
	n := 0
	for _, j := range m.matching(narrowed) {
		running := j.state == record.StateActive
		switch {
		case len(narrowed.Statuses) == 0:
		case running && a == jobs.ActionPause && j.mark == "cancel", running && a == jobs.ActionResume && j.mark != "pause":
		case !running && a != jobs.ActionExpire && j.overdue():
		default:
			n++
		}
	}
	return n
}

// actWhere acts on all jobs of a filter, queue by queue and place by place, until
// there are none left.
func (m *model) actWhere(o order, f jobs.Filter) (sum jobs.ActSummary) {
	narrowed, states := narrow(o.action, f)
	if o.states = states; len(states) == 0 {
		return sum
	}
	asked, refused, touched := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var orphans []ref
	act := func(queue string, ids []string) (changed bool) {
		touched[queue] = true
		for i, v := range m.act(o, queue, ids) {
			switch id := ids[i]; {
			case v.done:
				sum.Done++
				changed = true
			case v.asked:
				asked[id] = true
			case v.orphan:
				orphans = append(orphans, ref{queue, id})
			case v.refused:
				refused[id] = true
			}
		}
		return changed
	}
	for again := true; again; again = again && o.action != jobs.ActionRetry {
		again = false
		for _, s := range m.sources(narrowed) {
			if ids := s.read(); len(ids) > 0 {
				again = act(s.queue, ids) || again
			}
		}
		for again && o.action == jobs.ActionRetry && len(orphans) > 0 {
			// Their parents may have been retried after them.
			again = false
			once := orphans
			orphans = nil
			slices.Reverse(once) // the oldest first
			for len(once) > 0 {
				var ids []string
				queue := once[0].queue
				for len(once) > 0 && once[0].queue == queue {
					ids, once = append(ids, once[0].id), once[1:]
				}
				again = act(queue, ids) || again
			}
			slices.Reverse(orphans)
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(touched)) {
		m.tellFrom(queue)
	}
	sum.Asked, sum.Refused = len(asked), len(refused)+len(orphans)
	return sum
}
