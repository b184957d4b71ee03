package jobs

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// Bounds of a page.
const (
	// DefaultPage is the number of jobs of a page without a Limit.
	DefaultPage = 50
	// MaxPage is the largest Limit.
	MaxPage = 1000
	// scanPerPage bounds how many jobs a page reads when it filters by a field without an
	// index (key, batch, labels). The page may then be short, or empty, and still have a next one.
	scanPerPage = 2000
	// passPerPage bounds how many ids a page skips whose jobs have left the list.
	passPerPage = 100_000
	// scanAtOnce is how many jobs are read in one round trip at least.
	scanAtOnce = 100
	// pageBytes bounds the size in Redis of the jobs of a page.
	pageBytes = 16 << 20
)

// Filter selects jobs. Zero fields select all, but jobs of Tidegate's own destinations only
// if Destination names one.
type Filter struct {
	Statuses    []Status
	Destination string
	Key         string
	Batch       string
	// Labels selects jobs that have all of these labels; see [Label].
	Labels map[string]string
	// Since and Until select jobs that ended, or were created if they have not ended, at Since or
	// later, and before Until. Zero: at any time.
	Since, Until time.Time
	// Error selects jobs whose LastError has this text, in capitals or not.
	Error string
	// Cause selects jobs by the code of why they wait, such as rate_limited or worker_lost, or of a retry its
	// trigger, such as timeout; decided selects jobs that an answer rule completed or failed.
	Cause string
	// Destinations and Keys select jobs by globs of * and ?, such as shop*; empty: all. A job without a key
	// matches no glob.
	Destinations, Keys []string
}

// mostError bounds Filter.Error, in bytes.
const mostError = 500

var causeForm = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// byRecord reports whether jobs have to be read to know whether the filter selects them.
func (f *Filter) byRecord() bool {
	return len(f.Labels) > 0 || len(f.Keys) > 0 || f.Key != "" || f.Error != "" || f.Cause != "" || !f.Since.IsZero() || !f.Until.IsZero()
}

// matchesRecord reports whether the filter selects a job by what only its record says.
func (f *Filter) matchesRecord(j *Job) bool {
	at := j.CreatedAt
	if j.EndedAt != nil {
		at = *j.EndedAt
	}
	return (f.Key == "" || j.Key == f.Key) && (len(f.Keys) == 0 || j.Key != "" && store.MatchesGlob(f.Keys, j.Key)) &&
		!at.Before(f.Since) && (f.Until.IsZero() || at.Before(f.Until)) &&
		j.hasLabels(f.Labels) &&
		(f.Error == "" || strings.Contains(strings.ToLower(j.LastError), strings.ToLower(f.Error))) &&
		(f.Cause == "" || hasCause(j.ReasonCode, f.Cause))
}

// hasCause reports whether a reason has the code, or is a retry with it as its trigger.
func hasCause(reason, cause string) bool {
	fields := strings.Fields(reason)
	return len(fields) > 0 && (fields[0] == cause || fields[0] == store.ReasonRetry && fields[len(fields)-1] == cause)
}

// ListOptions select a page.
type ListOptions struct {
	Filter
	// HeldBy selects the jobs of Destination that the breaker or the limits of this key hold; the key is a value of
	// KEY_BY if the destination has one. These are the jobs that [Client.HeldCount] counts. Empty: all jobs.
	HeldBy string
	// Limit is the largest number of jobs, from 1 to MaxPage. 0 means DefaultPage.
	Limit int
	// Cursor is Page.Next of the previous page; empty for the first one.
	Cursor string
}

// Page is a page of jobs without their payloads.
type Page struct {
	// Items are fewer than Limit at the end, if a filter by key or batch skips many jobs, and
	// if they take more than 16 MiB.
	Items []*Job `json:"items"`
	// Next is the cursor of the next page, empty after the last one.
	Next string `json:"next"`
}

// List returns jobs, the newest first by their creation. Of a status with more than a thousand jobs only
// roughly so: those in a queue come by when they entered it. Those that wait for a time, or have ended,
// are sorted by creation in portions of up to a thousand, of the latest times first. A job that keeps its
// status during the paging is not missed; one that moves may be returned twice. Errors: ErrInvalid, or
// Redis's.
func (c *Client) List(ctx context.Context, o ListOptions) (*Page, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o.Limit = cmp.Or(o.Limit, DefaultPage)
	cur, err := decodeCursor(o.Cursor)
	if err != nil {
		return nil, err
	}
	sources, err := c.sources(ctx, o.Filter)
	if err != nil {
		return nil, fmt.Errorf("jobs: list: %w", err)
	}
	if o.HeldBy != "" {
		sources = nil
		for _, q := range c.ns.Queues(o.Destination) {
			sources = append(sources, source{name: q + "/k", status: Pending, queue: q, key: store.HeldJobsKey(q, o.HeldBy), kind: growing})
		}
	}
	if slices.Contains(o.Statuses, Expired) && o.Cursor == "" {
		for _, s := range sources {
			if s.key == store.ParkedKey(s.queue, store.StateExpired) {
				if err := c.sweep(ctx, s.queue, sweepsPerRead); err != nil {
					return nil, fmt.Errorf("jobs: list: %w", err)
				}
			}
		}
	}
	sorted, sources, err := c.sorted(ctx, sources, cur)
	if err != nil {
		return nil, fmt.Errorf("jobs: list: %w", err)
	}
	page := &Page{Items: []*Job{}}
	scanned, passed, atOnce, bytes := 0, 0, 0, 0
	var heads []*head
	for len(page.Items) < o.Limit && bytes < pageBytes && scanned < scanPerPage && passed < passPerPage {
		want := max(o.Limit-len(page.Items), atOnce)
		before := scanned
		if o.byRecord() || o.Batch != "" && len(o.Statuses) > 0 {
			want = max(want, scanAtOnce)
		}
		if heads, err = c.heads(ctx, sources, cur, want, heads); err != nil {
			return nil, fmt.Errorf("jobs: list: %w", err)
		}
		n := merge(slices.Concat(heads, sorted), want, func(h *head, i int) (more bool) {
			cur[h.source.name] = h.after(i)
			j := h.jobs[i]
			if j == nil {
				passed++
				return true
			}
			scanned++
			if o.matches(j) {
				page.Items = append(page.Items, j)
				bytes += h.sizes[i]
			}
			return len(page.Items) < o.Limit && bytes < pageBytes
		})
		if n == 0 {
			cur = nil
			break
		}
		if scanned == before {
			// There may be many cancelled jobs in a row: read more at once.
			atOnce = min(max(2*atOnce, scanAtOnce), MaxPage)
		}
	}
	if cur != nil {
		page.Next = cur.encode()
	}
	return page, nil
}

func (o *ListOptions) validate() error {
	var errs fieldErrors
	bad := errs.add
	if o.Limit < 0 || o.Limit > MaxPage {
		bad("limit", "must be from 1 to %d", MaxPage)
	}
	for _, s := range o.Statuses {
		if !slices.Contains(Statuses, s) {
			bad("status", "%q is not a status; there are %s", clip(string(s)), joinStatuses())
		}
	}
	for _, f := range [][3]string{{"key", o.Key, "key"}, {"batch", o.Batch, "batch"}, {"held by", o.HeldBy, "key"}} {
		if name := f[1]; name != "" && !ValidName(name) {
			bad(f[0], "%q cannot be the name of a %s", clip(name), f[2])
		}
	}
	validateLabels(o.Labels, bad)
	if len(o.Error) > mostError {
		bad("error", "has more than %d bytes", mostError)
	}
	if o.Cause != "" && !causeForm.MatchString(o.Cause) {
		bad("cause", "%q is not a cause; they are such as rate_limited, timeout and worker_lost", clip(o.Cause))
	}
	if !o.Since.IsZero() && !o.Until.IsZero() && !o.Since.Before(o.Until) {
		bad("until", "is not after since")
	}
	if o.HeldBy != "" && o.Destination == "" {
		bad("held by", "needs a destination")
	}
	if o.Destination != "" && !ValidDestination(o.Destination) {
		bad("destination", "%q cannot be the name of a destination", clip(o.Destination))
	}
	return errs.err()
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
		(f.Batch == "" || j.Batch == f.Batch) && f.matchesRecord(j)
}

// source is a list or set of a queue, asynq's or ours.
type source struct {
	name   string // of the cursor
	status Status // of its jobs; "": any
	queue  string
	key    string
	kind   store.ListKind
}

const (
	list     = store.PagedList
	unsorted = store.UnsortedList // a short list in any order
	zset     = store.PagedSet
	growing  = store.GrowingSet // a zset that jobs of the same status enter at its top

	byCreation store.ListKind = "created" // all jobs of a status, sorted
	runs       store.ListKind = "runs"    // a zset whose jobs are sorted in runs of it
)

// sources lists the sources of the wanted statuses.
func (c *Client) sources(ctx context.Context, f Filter) ([]source, error) {
	var queues []string
	if f.Destination != "" {
		queues = c.ns.Queues(f.Destination)
	} else {
		var err error
		if queues, err = c.listedQueues(ctx); err != nil {
			return nil, err
		}
	}
	queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool {
		destination, _, _ := store.ParseQueue(q)
		return !store.MatchesGlob(f.Destinations, destination)
	})
	want := func(s Status) bool { return len(f.Statuses) == 0 || slices.Contains(f.Statuses, s) }
	var out []source
	if f.Batch != "" {
		for _, q := range queues {
			out = append(out, source{name: q + "/b", queue: q, key: store.BatchKey(q, f.Batch), kind: zset})
		}
		return out, nil
	}
	for _, q := range queues {
		add := func(s Status, name, key string, kind store.ListKind) {
			if want(s) {
				out = append(out, source{name: q + "/" + name, status: s, queue: q, key: key, kind: kind})
			}
		}
		add(Running, "a", store.ActiveKey(q), unsorted)
		add(Running, "o", store.ParkedKey(q, store.StateAccepted), zset)
		// In this order a job that moves to the queue meanwhile is seen in one of the two.
		add(Pending, "s", store.ScheduledKey(q), zset)
		add(Waiting, "w", store.ParkedKey(q, store.StateWaiting), zset)
		add(Paused, "z", store.ParkedKey(q, store.StatePaused), zset)
		add(Pending, "p", store.PendingKey(q), list)
		add(Pending, "h", store.HeldKey(q), growing) // other keys than their own may hold jobs
		add(RetryPending, "r", store.RetryKey(q), zset)
		add(Completed, "c", store.CompletedKey(q), zset)
		add(Failed, "f", store.FailedKey(q), zset)
		add(Cancelled, "x", store.ParkedKey(q, store.StateCancelled), zset)
		add(Expired, "e", store.ParkedKey(q, store.StateExpired), zset)
	}
	return out, nil
}

// merge takes up to n jobs from the heads, the newest first, as long as take returns true,
// and returns how many it took.
func merge(heads []*head, n int, take func(h *head, i int) (more bool)) int {
	for taken := 0; ; taken++ {
		if taken == n {
			return taken
		}
		var best *head
		for _, h := range heads {
			if h.next == len(h.ids) {
				if h.cut {
					return taken // the next job of this head may be newer than the others
				}
				continue
			}
			if h.jobs[h.next] == nil { // no record: skip it at once
				best = h
				break
			}
			if best == nil || newer(h.jobs[h.next], best.jobs[best.next]) {
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

// newer reports whether a was created after b; UUIDv7 ids order jobs of one millisecond.
func newer(a, b *Job) bool {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID)) > 0
}
