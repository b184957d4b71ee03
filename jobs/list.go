package jobs

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// Bounds of a page.
const (
	// DefaultPage is how many jobs a page has unless asked otherwise.
	DefaultPage = 50
	// MaxPage is the most that can be asked for.
	MaxPage = 1000
	// scanPerPage bounds how many jobs a page looks at when it filters by what
	// there is no index for (key, batch). The page may then be short, or empty,
	// and still have a next one.
	scanPerPage = 2000
	// scanAtOnce is how many of them are read in one round trip at least.
	scanAtOnce = 100
)

//go:embed lua/page.lua
var pageSource string

var pageScript = redis.NewScript(pageSource)

// Filter selects jobs. Zero fields select all.
type Filter struct {
	Statuses    []Status
	Destination string
	Key         string
	Batch       string
}

// ListOptions select a page.
type ListOptions struct {
	Filter
	// Limit is how many jobs at most, from 1 to MaxPage. 0 means DefaultPage.
	Limit int
	// Cursor is Page.Next of the page before; empty for the first one.
	Cursor string
}

// Page is a page of jobs without their payloads.
type Page struct {
	Items []*Job `json:"items"`
	// Next is the cursor of the next page, empty after the last one.
	Next string `json:"next"`
}

// List returns jobs, the newest first: those that wait in a queue by when they
// got there, those that wait for a time by that time, those that have ended by
// their end. A job that stays in its status while one pages is not missed; one
// that moves may be met twice. Errors: ErrInvalid, or Redis's.
func (c *Client) List(ctx context.Context, o ListOptions) (*Page, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Limit == 0 {
		o.Limit = DefaultPage
	}
	cur, err := decodeCursor(o.Cursor)
	if err != nil {
		return nil, err
	}
	sources, err := c.sources(ctx, o.Filter)
	if err != nil {
		return nil, fmt.Errorf("jobs: list: %w", err)
	}
	page := &Page{Items: []*Job{}}
	scanned := 0
	for len(page.Items) < o.Limit && scanned < scanPerPage {
		want := o.Limit - len(page.Items)
		if o.Key != "" || o.Batch != "" {
			want = max(want, scanAtOnce)
		}
		heads, err := c.heads(ctx, sources, cur, want)
		if err != nil {
			return nil, fmt.Errorf("jobs: list: %w", err)
		}
		n := merge(heads, want, func(h *head, i int) (more bool) {
			scanned++
			cur[h.source.name] = h.after(i)
			if j := h.jobs[i]; j != nil && o.matches(j) {
				j.Payload = nil
				page.Items = append(page.Items, j)
			}
			return len(page.Items) < o.Limit
		})
		if n == 0 {
			return page, nil
		}
	}
	page.Next = cur.encode()
	return page, nil
}

func (o *ListOptions) validate() error {
	var fields []FieldError
	bad := func(field, format string, args ...any) {
		fields = append(fields, FieldError{field, fmt.Sprintf(format, args...)})
	}
	if o.Limit < 0 || o.Limit > MaxPage {
		bad("limit", "must be from 1 to %d", MaxPage)
	}
	for _, s := range o.Statuses {
		if !slices.Contains(Statuses, s) {
			bad("status", "%q is no status; there are %s", clip(string(s)), joinStatuses())
		}
	}
	if o.Destination != "" && !ValidDestination(o.Destination) {
		bad("destination", "%q cannot be the name of a destination", clip(o.Destination))
	}
	if len(fields) > 0 {
		return &ValidationError{Fields: fields}
	}
	return nil
}

func joinStatuses() string {
	names := make([]string, len(Statuses))
	for i, s := range Statuses {
		names[i] = string(s)
	}
	return joinSome(names)
}

func (f *Filter) matches(j *Job) bool {
	return (len(f.Statuses) == 0 || slices.Contains(f.Statuses, j.Status)) &&
		(f.Destination == "" || j.Destination == f.Destination) &&
		(f.Key == "" || j.Key == f.Key) &&
		(f.Batch == "" || j.Batch == f.Batch)
}

// source is one of asynq's or our own sets of a queue.
type source struct {
	name  string // of the cursor
	queue string
	key   string
	kind  sourceKind
}

type sourceKind int

const (
	list     sourceKind = iota // pushed on the left, popped from the right
	unsorted                   // a short list in any order
	zset
)

// sources lists where jobs of the wanted statuses are.
func (c *Client) sources(ctx context.Context, f Filter) ([]source, error) {
	var queues []string
	if f.Destination != "" {
		queues = record.Queues(f.Destination)
	} else {
		var err error
		if queues, err = c.ourQueues(ctx, true); err != nil {
			return nil, err
		}
	}
	want := func(s Status) bool { return len(f.Statuses) == 0 || slices.Contains(f.Statuses, s) }
	var out []source
	for _, q := range queues {
		add := func(s Status, name, key string, kind sourceKind) {
			if want(s) {
				out = append(out, source{name: q + "/" + name, queue: q, key: key, kind: kind})
			}
		}
		add(Running, "a", record.Active(q), unsorted)
		// In the order in which they are read: what moves to the queue meanwhile
		// is then seen in one of the two.
		add(Pending, "s", record.Scheduled(q), zset)
		add(Pending, "p", record.Pending(q), list)
		add(RetryPending, "r", record.Retry(q), zset)
		add(Completed, "c", record.Completed(q), zset)
		add(Failed, "f", record.Failed(q), zset)
	}
	return out, nil
}

// position is how far a source has been listed.
type position struct {
	// Member is the last one listed; of a list the leftmost of those that were.
	Member string `json:"m,omitempty"`
	Offset int    `json:"o,omitempty"` // of a list: how many were listed from Member on
	Score  string `json:"s,omitempty"` // of a sorted set: Member's
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

// valid reports whether Redis will understand the positions; null is none.
func (c cursor) valid() bool {
	for _, p := range c {
		if p.Offset < 0 || p.Offset > math.MaxInt32 {
			return false
		}
		if score, err := strconv.ParseFloat(cmp.Or(p.Score, "0"), 64); err != nil || math.IsNaN(score) {
			return false
		}
	}
	return c != nil
}

// head is the next part of a source.
type head struct {
	source source
	from   position
	newer  int // of a list: how many of the ids have come since on the left
	ids    []string
	scores []string
	jobs   []*Job // nil where the id has no record
	next   int    // of merge
}

// after is the position once the i-th of the head has been listed.
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
	}
	return position{Score: h.scores[i], Member: h.ids[i]}
}

// heads reads the next n of each source.
func (c *Client) heads(ctx context.Context, sources []source, cur cursor, n int) ([]*head, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	heads, err := c.nextIDs(ctx, sources, cur, n)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A pipeline cannot fall back to EVAL by itself.
		if err := pageScript.Load(ctx, c.rdb).Err(); err != nil {
			return nil, err
		}
		heads, err = c.nextIDs(ctx, sources, cur, n)
	}
	if err != nil {
		return nil, err
	}
	return heads, c.fill(ctx, heads)
}

// nextIDs reads the next n ids of each source in one pipeline.
func (c *Client) nextIDs(ctx context.Context, sources []source, cur cursor, n int) ([]*head, error) {
	heads := make([]*head, len(sources))
	actives := make([]*redis.StringSliceCmd, len(sources))
	pages := make([]*redis.Cmd, len(sources))
	if _, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, s := range sources {
			from := cur[s.name]
			heads[i] = &head{source: s, from: from}
			switch s.kind {
			case unsorted:
				actives[i] = pipe.LRange(ctx, s.key, 0, -1)
			case list:
				pages[i] = pageScript.EvalSha(ctx, pipe, []string{s.key}, "list", n, from.Member, from.Offset)
			case zset:
				pages[i] = pageScript.EvalSha(ctx, pipe, []string{s.key}, "set", n, from.Member, cmp.Or(from.Score, "+inf"))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, h := range heads {
		if h.source.kind == unsorted {
			h.ids = actives[i].Val()
			sort.Sort(sort.Reverse(sort.StringSlice(h.ids)))
			if m := h.from.Member; m != "" {
				h.ids = h.ids[sort.Search(len(h.ids), func(k int) bool { return h.ids[k] < m }):]
			}
			h.ids = h.ids[:min(n, len(h.ids))]
			continue
		}
		reply, err := pages[i].Slice()
		if err != nil {
			return nil, err
		}
		h.take(reply)
	}
	return heads, nil
}

// take reads what page.lua has returned.
func (h *head) take(reply []any) {
	if h.source.kind == list && len(reply) >= 2 {
		if found, _ := reply[0].(int64); found == 0 {
			h.from = position{} // the queue has turned over: all of it is new
		}
		newer, _ := reply[1].(int64)
		h.newer, reply = int(newer), reply[2:]
	}
	for i := 0; i < len(reply); i++ {
		id, _ := reply[i].(string)
		h.ids = append(h.ids, id)
		if h.source.kind == zset && i+1 < len(reply) {
			i++
			score, _ := reply[i].(string)
			h.scores = append(h.scores, score)
		}
	}
}

// fill reads the records of all heads in one pipeline.
func (c *Client) fill(ctx context.Context, heads []*head) error {
	var cmds []*redis.MapStringStringCmd
	_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, h := range heads {
			for _, id := range h.ids {
				cmds = append(cmds, pipe.HGetAll(ctx, record.Task(h.source.queue, id)))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	for _, h := range heads {
		h.jobs = make([]*Job, len(h.ids))
		for i := range h.ids {
			fields := cmds[0].Val()
			cmds = cmds[1:]
			if fields[record.FieldMsg] == "" {
				continue
			}
			// A record that cannot be read is left out of the list; get shows why.
			if j, err := FromRecord(fields); err == nil {
				h.jobs[i] = j
			}
		}
	}
	return nil
}

// merge takes up to n jobs from the heads, the newest of them each time, as long
// as take wants more, and returns how many it took.
func merge(heads []*head, n int, take func(h *head, i int) (more bool)) int {
	for taken := 0; ; taken++ {
		if taken == n {
			return taken
		}
		var best *head
		for _, h := range heads {
			if h.next == len(h.ids) {
				continue
			}
			if h.jobs[h.next] == nil { // no record: pass over it at once
				best = h
				break
			}
			if best == nil || h.jobs[h.next].CreatedAt.After(best.jobs[best.next].CreatedAt) {
				best = h
			}
		}
		if best == nil {
			return taken
		}
		best.next++
		if !take(best, best.next-1) {
			return taken + 1
		}
	}
}
