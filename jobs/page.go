package jobs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// position is how far a source has been listed.
type position struct {
	// Member is the last listed id; of a list the leftmost one.
	Member string `json:"m,omitempty"`
	Offset int    `json:"o,omitempty"` // of a list: how many were listed from Member on
	Score  string `json:"s,omitempty"` // of a sorted set: Member's
	Top    string `json:"t,omitempty"` // of a growing set: the highest score that was listed
	// Created is when Member was created, in unix milliseconds, for the sorted jobs of a status. In a run
	// it is when the last listed job was, which is ID; Member is the last id before the run, and End the
	// last one of it, with EndScore.
	Created  int64  `json:"c,omitempty"`
	ID       string `json:"i,omitempty"`
	End      string `json:"e,omitempty"`
	EndScore string `json:"f,omitempty"`
}

type cursor map[string]position

func (c cursor) encode() string {
	b, _ := json.Marshal(c) //nolint:errchkjson // strings and ints only
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (cursor, error) {
	c := cursor{}
	if s == "" {
		return c, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil || !c.valid() {
		return nil, &ValidationError{Fields: []FieldError{{"cursor", "is none that a list has returned; start without one"}}}
	}
	return c, nil
}

// scorePattern matches the scores of Redis, or nothing. Go parses more forms than Redis does.
var scorePattern = regexp.MustCompile(`^(-?(inf|[0-9]{1,20}(\.[0-9]{1,20})?(e[-+][0-9]{1,3})?))?$`)

// valid reports whether Redis can parse the positions; null is not valid.
func (c cursor) valid() bool {
	for _, p := range c {
		if p.Offset < 0 || p.Offset > math.MaxInt32 {
			return false
		}
		if !scorePattern.MatchString(p.Score) || !scorePattern.MatchString(p.Top) || !scorePattern.MatchString(p.EndScore) {
			return false
		}
	}
	return c != nil
}

// head is the next part of a source.
type head struct {
	source  source
	from    position
	newer   int // of a list or a growing set: how many of the ids are new
	ids     []string
	scores  []string
	created []int64 // of a sorted one, and of a run, unix milliseconds
	run     run     // of one in runs
	jobs    []*Job  // nil where the id has no record
	sizes   []int   // of the records in bytes, without payloads
	cut     bool    // fill left out further ids
	next    int     // of merge
}

// after returns the position after the i-th id of the head.
func (h *head) after(i int) position {
	switch h.source.kind {
	case list:
		p := position{Member: h.from.Member, Offset: h.from.Offset + i + 1}
		switch {
		case i < h.newer:
			p.Member = h.ids[i]
		case h.newer > 0:
			p.Member = h.ids[h.newer-1]
		case p.Member == "":
			p.Member = h.ids[0]
		}
		return p
	case unsorted:
		return position{Member: h.ids[i]}
	case growing:
		p := h.from
		switch {
		case i < h.newer:
			p.Top = h.scores[i]
			return p
		case h.newer > 0:
			p.Top = h.scores[h.newer-1]
		case p.Top == "":
			p.Top = h.scores[0]
		}
		p.Member, p.Score = h.ids[i], h.scores[i]
		return p
	case byCreation:
		return position{Created: h.created[i], Member: h.ids[i]}
	case runs:
		return h.afterRun(i)
	case zset:
	}
	return position{Score: h.scores[i], Member: h.ids[i]}
}

// heads reads the next n of each source. Of those in runs it reads the run, unless one of the heads
// before has jobs of it left, or was the last.
func (c *Client) heads(ctx context.Context, sources []source, cur cursor, n int, before []*head) ([]*head, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	var left []*head
	var inRuns, others []source
	for _, s := range sources {
		i := slices.IndexFunc(before, func(h *head) bool { return h.source.name == s.name && (h.next < len(h.ids) || !h.run.more) })
		switch {
		case s.kind != runs:
			others = append(others, s)
		case i >= 0:
			left = append(left, before[i])
		default:
			inRuns = append(inRuns, s)
		}
	}
	heads, err := c.nextHeads(ctx, others, cur, n)
	if err != nil {
		return nil, err
	}
	if len(inRuns) > 0 {
		of, err := c.nextRuns(ctx, inRuns, cur)
		if err != nil {
			return nil, err
		}
		heads = append(heads, of...)
	}
	if err := c.fill(ctx, heads); err != nil {
		return nil, err
	}
	c.expireHeads(ctx, heads)
	for _, h := range heads {
		if h.source.kind == runs {
			h.sortRun()
		}
	}
	return append(heads, left...), nil
}

// mostSorted is the largest number of jobs of a status that are sorted for a page.
const mostSorted = 1000

// sorted reads the jobs of each status that has few, sorts them by creation, and drops the jobs that
// earlier pages have listed. rest are the sources of the other statuses, in whose order their jobs are listed. A
// status is of these until the end once the cursor has a position in one of its sources: if it has become
// large, its jobs are listed again.
func (c *Client) sorted(ctx context.Context, sources []source, cur cursor) (out []*head, rest []source, err error) {
	groups := map[Status][]source{}
	began := map[Status]bool{}
	for _, s := range sources {
		groups[s.status] = append(groups[s.status], s)
		if _, ok := cur[s.name]; ok || s.status == "" {
			began[s.status] = true
		}
	}
	var few []source
	for _, s := range sources {
		if began[s.status] {
			rest = append(rest, s.inRuns())
		} else {
			few = append(few, s)
		}
	}
	if len(few) == 0 {
		return nil, rest, nil
	}
	heads, err := c.nextHeads(ctx, few, nil, mostSorted+1)
	if err != nil {
		return nil, nil, err
	}
	byStatus, size := map[Status][]*head{}, map[Status]int{}
	for _, h := range heads {
		byStatus[h.source.status] = append(byStatus[h.source.status], h)
		size[h.source.status] += len(h.ids)
	}
	for _, status := range Statuses {
		of := byStatus[status]
		if len(of) == 0 {
			continue
		}
		// No queue has a name with "=".
		one := &head{source: source{name: "=" + string(status), status: status, kind: byCreation}}
		whole := size[status] <= mostSorted
		if whole && size[status] > 0 {
			if err := c.fill(ctx, of); err != nil {
				return nil, nil, err
			}
			c.expireHeads(ctx, of)
			whole = !slices.ContainsFunc(of, func(h *head) bool { return h.cut })
		}
		if !whole {
			for _, s := range groups[status] {
				rest = append(rest, s.inRuns())
			}
			delete(cur, one.source.name)
			continue
		}
		one.from = cur[one.source.name]
		one.sort(of)
		out = append(out, one)
	}
	return out, rest, nil
}

// sort takes the jobs of the heads that come after its position, the newest first.
func (h *head) sort(heads []*head) {
	type one struct {
		*Job
		size int
	}
	var all []one
	seen := map[string]bool{}
	last := &Job{ID: h.from.Member, CreatedAt: time.UnixMilli(h.from.Created)}
	for _, of := range heads {
		for i, j := range of.jobs {
			if j == nil || seen[j.Destination+"/"+j.ID] || h.from.Member != "" && !newer(last, j) {
				continue
			}
			seen[j.Destination+"/"+j.ID] = true
			all = append(all, one{j, of.sizes[i]})
		}
	}
	slices.SortFunc(all, func(a, b one) int {
		if newer(a.Job, b.Job) {
			return -1
		}
		return 1
	})
	for _, j := range all {
		h.ids, h.jobs, h.sizes = append(h.ids, j.ID), append(h.jobs, j.Job), append(h.sizes, j.size)
		h.created = append(h.created, j.CreatedAt.UnixMilli())
	}
}

// nextHeads reads the ids of the next n of each source in one round trip.
func (c *Client) nextHeads(ctx context.Context, sources []source, cur cursor, n int) ([]*head, error) {
	heads, asked := make([]*head, len(sources)), make([]store.PageArgs, len(sources))
	for i, s := range sources {
		from := cur[s.name]
		heads[i] = &head{source: s, from: from}
		kind := s.kind
		if kind == runs {
			kind = zset
		}
		asked[i] = store.PageArgs{Key: s.key, Kind: kind, Known: from.Member, Score: from.Score, Top: from.Top, Offset: from.Offset}
	}
	pages, err := store.Pages(ctx, c.rdb, n, asked)
	if err != nil {
		return nil, err
	}
	for i, h := range heads {
		page := pages[i]
		h.ids, h.scores, h.newer = page.IDs, page.Scores, page.Newer
		if page.Lost {
			h.from = position{} // the queue has turned over: all of its ids are new
		}
		if h.source.kind == unsorted {
			sort.Sort(sort.Reverse(sort.StringSlice(h.ids)))
			if m := h.from.Member; m != "" {
				h.ids = h.ids[sort.Search(len(h.ids), func(k int) bool { return h.ids[k] < m }):]
			}
			h.ids = h.ids[:min(n, len(h.ids))]
		}
	}
	return heads, nil
}

const (
	// recordsAtOnce is how many records are read in one round trip.
	recordsAtOnce = 250
	// headBytes bounds the records of all heads, but for the first of each.
	headBytes = 4 << 20
)

// outlineFields are the fields of a record that a Job without its payload needs.
var outlineFields = []string{
	store.FieldState, store.FieldTombstone, store.FieldAttempt, store.FieldReschedules, store.FieldCrashes,
	store.FieldLastError, store.FieldBy, store.FieldStartedAt, store.FieldTook, store.FieldExpiresAt, store.FieldAvailableAt, store.FieldReason, store.FieldKey,
	store.FieldLine, store.FieldWaits,
	store.FieldEndedAt, store.FieldResume, store.FieldResponseStatus, store.FieldResponseBody,
}

// place is the position of a record in the heads.
type place struct {
	h *head
	i int
}

// fill reads the records of all heads without their payloads, the first of each head, the
// second of each, and so on, up to headBytes. It removes the other ids from the heads: they
// are read with the next ones.
func (c *Client) fill(ctx context.Context, heads []*head) error {
	var places []place
	for i, more := 0, true; more; i++ {
		more = false
		for _, h := range heads {
			if i < len(h.ids) {
				places, more = append(places, place{h, i}), true
			}
		}
	}
	for _, h := range heads {
		h.jobs, h.sizes = make([]*Job, 0, len(h.ids)), make([]int, 0, len(h.ids))
	}
	var held []*Job
	bytes := 0
	for chunk := range slices.Chunk(places, recordsAtOnce) {
		if bytes >= headBytes && chunk[0].i > 0 {
			break
		}
		keys := make([]string, len(chunk))
		for k, p := range chunk {
			keys[k] = store.TaskKey(p.h.source.queue, p.h.ids[p.i])
		}
		outlines, err := c.outlines(ctx, keys)
		if err != nil {
			return err
		}
		for k, p := range chunk {
			o, j := outlines[k], outlines[k].job()
			if p.h.source.kind == list && o.fields[store.FieldTombstone] != "" {
				j = nil // the job is elsewhere
			}
			if j != nil && o.fields[store.FieldState] == store.StateHeld {
				held = append(held, j)
			}
			bytes += o.size
			p.h.jobs, p.h.sizes = append(p.h.jobs, j), append(p.h.sizes, o.size)
		}
	}
	for _, h := range heads {
		h.cut = len(h.jobs) < len(h.ids)
		h.ids = h.ids[:len(h.jobs)]
	}
	return c.heldUntil(ctx, held)
}

// outline is a record without its payload and its history.
type outline struct {
	fields map[string]string
	size   int // bytes
}

// job returns nil if the record is gone or cannot be read: Get returns the error.
func (o outline) job() *Job {
	if o.fields[store.FieldMsg] == "" {
		return nil
	}
	j, err := fromRecord(o.fields)
	if err != nil {
		return nil
	}
	j.Payload = nil
	return j
}

// outlines reads the outlines of several task hashes in one round trip.
func (c *Client) outlines(ctx context.Context, keys []string) ([]outline, error) {
	fields, sizes, err := store.Outlines(ctx, c.rdb, keys, outlineFields)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	out := make([]outline, len(keys))
	for i := range out {
		out[i] = outline{fields: fields[i], size: sizes[i]}
	}
	return out, nil
}
