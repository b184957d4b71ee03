package jobs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The set of a status with many jobs is not in the order of their creation, but by when they are due or
// have ended. It is listed in runs: a run is a number of ids in the order of the set, sorted by creation. The
// position of a page in a run has both ends of it, so that what enters or leaves the set between two
// pages changes nothing for the other jobs.

const (
	// longestRun bounds the ids of a run, and runRecords the records that are read for the runs of a page.
	longestRun = 1000
	runRecords = 3000
)

// inRuns returns the source of a status with many jobs: a set is listed in runs.
func (s source) inRuns() source {
	if s.kind == zset && s.status != "" {
		s.kind = runs
	}
	return s
}

// run is what a head knows of its run.
type run struct {
	more   bool     // its set has more ids
	whole  bool     // the ids reach its end
	end    position // its last id
	beyond position // where to go on after the ids
}

// nextRuns reads the ids of the run of each set.
func (c *Client) nextRuns(ctx context.Context, sources []source, cur cursor) ([]*head, error) {
	n := max(min(longestRun, runRecords/len(sources)), scanAtOnce)
	heads, err := c.nextHeads(ctx, sources, cur, n)
	if err != nil {
		return nil, err
	}
	for _, h := range heads {
		h.run.more = len(h.ids) == n
		h.run.whole = !h.run.more
		for i, id := range h.ids {
			if h.from.End != "" && order(h.scores[i], id, h.from.EndScore, h.from.End) > 0 {
				h.ids, h.scores = h.ids[:i], h.scores[:i]
				h.run.more, h.run.whole = true, true
				break
			}
		}
	}
	return heads, nil
}

// sortRun sorts the jobs of a run, leaves out jobs that were listed before, and puts a last one behind them that does
// not exist: its position is the end of the run.
func (h *head) sortRun() {
	if len(h.ids) == 0 && h.from.End == "" {
		return
	}
	if h.cut {
		h.run.more, h.run.whole = true, false
	}
	h.cut = h.run.more
	last := len(h.ids) - 1
	h.run.end = position{Member: h.from.End, Score: h.from.EndScore}
	if h.from.End == "" {
		h.run.end = position{Member: h.ids[last], Score: h.scores[last]}
	}
	h.run.beyond = h.run.end
	if h.from.End != "" && !h.run.whole && last >= 0 {
		// Ids have entered the run, or records are large: the rest is next, and may be listed again.
		h.run.beyond = position{Member: h.ids[last], Score: h.scores[last]}
	}
	type one struct {
		*Job
		size int
	}
	var all []one
	listed := &Job{ID: h.from.ID, CreatedAt: time.UnixMilli(h.from.Created)}
	for i, j := range h.jobs {
		if j != nil && (h.from.ID == "" || newer(listed, j)) {
			all = append(all, one{j, h.sizes[i]})
		}
	}
	slices.SortFunc(all, func(a, b one) int {
		if newer(a.Job, b.Job) {
			return -1
		}
		return 1
	})
	h.ids, h.scores, h.jobs, h.sizes = nil, nil, nil, nil
	for _, j := range all {
		h.ids, h.jobs, h.sizes = append(h.ids, j.ID), append(h.jobs, j.Job), append(h.sizes, j.size)
		h.created = append(h.created, j.CreatedAt.UnixMilli())
	}
	h.ids, h.jobs, h.sizes = append(h.ids, ""), append(h.jobs, nil), append(h.sizes, 0)
}

// afterRun is the position after the i-th job of a run, or after the run.
func (h *head) afterRun(i int) position {
	if h.jobs[i] == nil {
		return h.run.beyond
	}
	return position{
		Member: h.from.Member, Score: h.from.Score, Created: h.created[i], ID: h.ids[i],
		End: h.run.end.Member, EndScore: h.run.end.Score,
	}
}

// order compares two places of a set that is read from its highest score down.
func order(scoreA, a, scoreB, b string) int {
	x, _ := strconv.ParseFloat(scoreA, 64)
	y, _ := strconv.ParseFloat(scoreB, 64)
	return cmp.Or(cmp.Compare(y, x), strings.Compare(b, a))
}
