package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// place moves many pending jobs to where workers or people would have put them.
func (b *bench) place(js []*jobs.Job, state string) {
	b.t.Helper()
	ctx := context.Background()
	later := time.Now().Add(hour)
	_, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, j := range js {
			q := queueOf(j)
			p.LRem(ctx, store.PendingKey(q), 1, j.ID)
			fields := []any{store.FieldState, state}
			switch state {
			case store.StateActive:
				p.LPush(ctx, store.ActiveKey(q), j.ID)
				fields = append(fields, store.FieldStartedAt, time.Now().UnixMilli(), store.FieldBy, "w:1")
			case store.StateRetry, store.StateScheduled:
				p.ZAdd(ctx, map[string]string{store.StateRetry: store.RetryKey(q), store.StateScheduled: store.ScheduledKey(q)}[state],
					redis.Z{Score: float64(later.Unix() + int64(i)), Member: j.ID})
				fields = append(fields, store.FieldAvailableAt, (later.Unix()+int64(i))*1000)
			case store.StateCompleted:
				p.ZAdd(ctx, store.CompletedKey(q), redis.Z{Score: float64(later.Unix() + int64(i)), Member: j.ID})
				fields = append(fields, store.FieldEndedAt, time.Now().UnixMilli())
			default:
				p.ZAdd(ctx, store.ParkedKey(q, state), redis.Z{Score: float64(time.Now().UnixMilli() - int64(i/3)), Member: j.ID})
				fields = append(fields, store.FieldEndedAt, time.Now().UnixMilli(), store.FieldLastError, "boom")
			}
			p.HSet(ctx, store.TaskKey(q, j.ID), fields...)
		}
		return nil
	})
	b.must(err)
}

// crowd is a batch of jobs over three destinations and all priorities, in every
// status.
type crowd struct {
	*bench // whose client knows all destinations
	dests  []string
	batch  string
	jobs   []*jobs.Job
}

// newCrowd has n jobs. Every tenth has the key "odd", every third is not of the
// batch.
func newCrowd(t *testing.T, rdb redis.UniversalClient, n int) *crowd {
	t.Helper()
	var dests []string
	for range 3 {
		dests = append(dests, redistest.Name(t, "crowd"))
	}
	c := &crowd{bench: benchOn(t, rdb, jobs.WithDestinations(dests...)), dests: dests, batch: dests[0]}
	ctx := context.Background()
	parent, err := c.Enqueue(ctx, jobs.New(c.dest, "parent"))
	c.must(err)
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(dests[i%3], i, jobs.Prioritize([]jobs.Priority{jobs.PriorityHigh, jobs.PriorityDefault, jobs.PriorityLow}[i/3%3]))
		if i%3 != 2 {
			jobs.Batch(c.batch).Apply(specs[i])
		}
		if i%10 == 1 {
			jobs.Key("odd").Apply(specs[i])
		}
		switch i % 11 {
		case 0:
			jobs.After(parent.ID).Apply(specs[i])
		case 1:
			jobs.Delay(hour).Apply(specs[i])
		case 2:
			jobs.TTL(0).Apply(specs[i])
		}
	}
	results, err := c.EnqueueMany(ctx, specs)
	c.must(err)
	groups := map[string][]*jobs.Job{}
	var pause, cancel []string
	for i, r := range results {
		c.must(r.Err)
		c.jobs = append(c.jobs, r.Job)
		switch i % 11 {
		case 3:
			groups[store.StateActive] = append(groups[store.StateActive], r.Job)
		case 4:
			groups[store.StateRetry] = append(groups[store.StateRetry], r.Job)
		case 5:
			groups[store.StateCompleted] = append(groups[store.StateCompleted], r.Job)
		case 6:
			groups[store.StateFailed] = append(groups[store.StateFailed], r.Job)
		case 7, 1:
			pause = append(pause, r.Job.ID)
		case 8:
			cancel = append(cancel, r.Job.ID)
		}
	}
	for state, js := range groups {
		c.place(js, state)
	}
	for a, ids := range map[jobs.Action][]string{jobs.ActionPause: pause, jobs.ActionCancel: cancel} {
		answers, err := c.Act(ctx, a, ids)
		c.must(err)
		for _, r := range answers {
			c.must(r.Err)
		}
	}
	return c
}

// now reads all jobs of the crowd.
func (c *crowd) now() map[string]*jobs.Job {
	c.t.Helper()
	out := map[string]*jobs.Job{}
	for _, j := range c.jobs {
		out[j.ID] = c.get(j.ID)
	}
	return out
}

// selects reports whether a filter is for a job.
func selects(f jobs.Filter, j *jobs.Job) bool {
	status := len(f.Statuses) == 0
	for _, s := range f.Statuses {
		status = status || j.Status == s
	}
	return status && (f.Destination == "" || j.Destination == f.Destination) && (f.Key == "" || j.Key == f.Key) && (f.Batch == "" || j.Batch == f.Batch)
}

// becomes says what an action makes of a job: its status after, and whether that is
// counted as done or as asked; neither where the action is not for it.
func becomes(a jobs.Action, j *jobs.Job) (after jobs.Status, done, asked bool) {
	s := j.Status
	switch {
	case a == jobs.ActionRetry && (s == jobs.Failed || s == jobs.Cancelled):
		return jobs.Pending, true, false
	case a == jobs.ActionResume && s == jobs.Paused:
		return jobs.Pending, true, false
	case a == jobs.ActionRetry, a == jobs.ActionResume, s.Final():
	case s == jobs.Running:
		return s, false, a != jobs.ActionExpire
	case a == jobs.ActionPause && s != jobs.Paused:
		return jobs.Paused, true, false
	case a == jobs.ActionCancel:
		return jobs.Cancelled, true, false
	case a == jobs.ActionExpire:
		return jobs.Expired, true, false
	}
	return s, false, false
}

// Every action with every kind of filter, on jobs in every status: those that the
// filter selects and the action is for are acted on, the others are untouched, and
// the dry run had said how many.
func TestActWhere(t *testing.T) {
	t.Parallel()
	const n = 132
	for name, of := range map[string]func(c *crowd) jobs.Filter{
		"batch":              func(c *crowd) jobs.Filter { return jobs.Filter{Batch: c.batch} },
		"destination":        func(c *crowd) jobs.Filter { return jobs.Filter{Destination: c.dests[1]} },
		"key":                func(*crowd) jobs.Filter { return jobs.Filter{Key: "odd"} },
		"batch and key":      func(c *crowd) jobs.Filter { return jobs.Filter{Batch: c.batch, Key: "odd"} },
		"batch, destination": func(c *crowd) jobs.Filter { return jobs.Filter{Batch: c.batch, Destination: c.dests[1]} },
		"destination, key":   func(c *crowd) jobs.Filter { return jobs.Filter{Destination: c.dests[2], Key: "odd"} },
		"all of them": func(c *crowd) jobs.Filter {
			return jobs.Filter{Batch: c.batch, Destination: c.dests[0], Key: "odd", Statuses: jobs.Statuses}
		},
		"pending": func(c *crowd) jobs.Filter {
			return jobs.Filter{Destination: c.dests[0], Statuses: []jobs.Status{jobs.Pending}}
		},
		"pending and paused": func(c *crowd) jobs.Filter {
			return jobs.Filter{Destination: c.dests[0], Statuses: []jobs.Status{jobs.Pending, jobs.Paused}}
		},
		"failed, in batch": func(c *crowd) jobs.Filter {
			return jobs.Filter{Batch: c.batch, Statuses: []jobs.Status{jobs.Failed}}
		},
		"running or cancelled": func(c *crowd) jobs.Filter {
			return jobs.Filter{Destination: c.dests[2], Statuses: []jobs.Status{jobs.Running, jobs.Cancelled}}
		},
		"batch of another": func(*crowd) jobs.Filter { return jobs.Filter{Batch: "nobody"} },
	} {
		for _, a := range []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume, jobs.ActionRetry, jobs.ActionExpire} {
			t.Run(name+", "+string(a), func(t *testing.T) {
				t.Parallel()
				c := newCrowd(t, redistest.Database(t).Client(t), n)
				testActWhere(t, c, a, of(c))
			})
		}
	}
}

func testActWhere(t *testing.T, c *crowd, a jobs.Action, f jobs.Filter) {
	t.Helper()
	ctx := context.Background()
	before := c.now()
	var want jobs.ActSummary
	after := map[string]jobs.Status{}
	for id, j := range before {
		after[id] = j.Status
		if !selects(f, j) {
			continue
		}
		s, done, asked := becomes(a, j)
		after[id] = s
		if done {
			want.Done++
		}
		if asked {
			want.Asked++
		}
	}
	if a == jobs.ActionResume { // what waited goes back to waiting
		for id, j := range before {
			if j.Status == jobs.Paused && after[id] == jobs.Pending && j.NextRetryAt != nil {
				after[id] = jobs.RetryPending
			}
		}
	}
	count, err := c.CountWhere(ctx, a, f)
	c.must(err)
	if diff := cmp.Diff(before, c.now()); diff != "" {
		t.Errorf("the dry run changed jobs:\n%s", diff)
	}
	sum, err := c.ActWhere(ctx, a, f, jobs.By("alice"))
	c.must(err)
	if sum != want || count != want.Done+want.Asked {
		t.Errorf("%+v, dry run %d, want %+v", sum, count, want)
	}
	got := map[string]jobs.Status{}
	for id, j := range c.now() {
		got[id] = j.Status
	}
	if diff := cmp.Diff(after, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	again, err := c.CountWhere(ctx, a, f)
	c.must(err)
	if again != want.Asked {
		t.Errorf("a second dry run says %d, want %d", again, want.Asked)
	}
}

// A filter that selects everything is refused, as are others that List refuses, by
// the dry run too.
func TestActWhereRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.enqueue().ID
	for want, f := range map[string]jobs.Filter{
		"filter: selects every job there is; give a status, a destination, a key, a batch, a label, a time, an error or a cause": {},
		`status: "done" is not a status; there are`:              {Statuses: []jobs.Status{"done"}},
		`destination: "A b" cannot be the name of a destination`: {Destination: "A b"},
	} {
		_, err := b.ActWhere(context.Background(), jobs.ActionCancel, f)
		_, err2 := b.CountWhere(context.Background(), jobs.ActionCancel, f)
		for _, err := range []error{err, err2} {
			if !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	}
	b.wantStatus(&jobs.Job{ID: id}, jobs.Pending)
}
