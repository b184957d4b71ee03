package jobs_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
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
		"filter: selects every job there is; give a status, a destination, a key or a batch": {},
		`status: "done" is no status; there are`:                                             {Statuses: []jobs.Status{"done"}},
		`destination: "A b" cannot be the name of a destination`:                             {Destination: "A b"},
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

// Families are counted by those that the filter selects, whichever of them is met
// first, and can be retried as a whole though children wait for their parents.
func TestActWhereOnFamilies(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		a, b := benchOn(t, rdb), benchOn(t, rdb)
		ctx := context.Background()
		var family []*jobs.Job
		for i := range 6 {
			at := []*bench{a, b}[i%2] // parents now in the queue that is met first, now in the other
			opts := []jobs.Option{jobs.Batch(a.dest)}
			if i > 0 {
				opts = append(opts, jobs.After(family[i-1].ID))
			}
			family = append(family, at.enqueue(opts...))
		}
		outside := b.enqueue(jobs.After(family[5].ID))
		f := jobs.Filter{Batch: a.dest}
		n, err := a.CountWhere(ctx, jobs.ActionCancel, f)
		a.must(err)
		sum, err := a.ActWhere(ctx, jobs.ActionCancel, f)
		a.must(err)
		if n != 6 || sum != (jobs.ActSummary{Done: 6}) {
			t.Errorf("cancel: dry run %d, %+v; want 6", n, sum)
		}
		a.wantStatus(outside, jobs.Cancelled)
		if sum, err = a.ActWhere(ctx, jobs.ActionRetry, f); err != nil || sum != (jobs.ActSummary{Done: 6}) {
			t.Errorf("retry: %+v, %v; want 6", sum, err)
		}
		for i, j := range family {
			a.wantStatus(j, []jobs.Status{jobs.Pending, jobs.Waiting}[min(i, 1)])
		}
		a.wantStatus(outside, jobs.Cancelled)
		for i, j := range family {
			a.wantStatus(j, jobs.Pending)
			a.complete(j)
			if i == 2 {
				break
			}
		}
		// From the fourth on: their parent is not among those to be retried.
		a.must(a.Cancel(ctx, family[3].ID))
		f.Destination = a.dest
		if sum, err = a.ActWhere(ctx, jobs.ActionRetry, f); err != nil || sum != (jobs.ActSummary{Refused: 1}) {
			t.Errorf("retry of a child whose parent stays cancelled: %+v, %v", sum, err)
		}
	})
}

// Workers and producers go on while a destination is cancelled: what stays in the
// queue is cancelled, nothing is lost, and it comes to an end.
func TestActWhereWhileJobsMove(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	ctx := context.Background()
	const n = 3000
	specs := make([]*jobs.Spec, n)
	for i := range specs {
		specs[i] = jobs.New(b.dest, i)
	}
	results, err := b.EnqueueMany(ctx, specs)
	b.must(err)
	stop := make(chan struct{})
	var others sync.WaitGroup
	taken := map[string]bool{}
	others.Go(func() { // a worker puts jobs off, or completes them
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id, err := b.rdb.LMove(ctx, store.PendingKey(b.queue()), store.ActiveKey(b.queue()), "RIGHT", "LEFT").Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			if b.rdb.HGet(ctx, store.TaskKey(b.queue(), id), store.FieldState).Val() != store.StatePending {
				_ = b.rdb.LRem(ctx, store.ActiveKey(b.queue()), 1, id).Err()
				continue
			}
			taken[id] = true
			_ = b.rdb.LRem(ctx, store.ActiveKey(b.queue()), 1, id).Err()
			_ = b.rdb.ZAdd(ctx, store.CompletedKey(b.queue()), redis.Z{Score: 5e9, Member: id}).Err()
			_ = b.rdb.HSet(ctx, store.TaskKey(b.queue(), id), store.FieldState, store.StateCompleted).Err()
		}
	})
	var produced []string
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			j, err := b.Enqueue(ctx, jobs.New(b.dest, "new"))
			if err != nil {
				t.Error(err)
				return
			}
			produced = append(produced, j.ID)
		}
	})
	sum, err := b.ActWhere(ctx, jobs.ActionCancel, jobs.Filter{Destination: b.dest})
	b.must(err)
	close(stop)
	others.Wait()
	for _, r := range results {
		s := b.get(r.Job.ID).Status
		if s != jobs.Cancelled && !taken[r.Job.ID] {
			t.Errorf("%s was in the queue all the time and is %s", r.Job.ID, s)
		}
	}
	cancelled := len(produced)
	if sum.Done < n-len(taken) || sum.Done > n+cancelled {
		t.Errorf("%+v of %d jobs, %d were taken and %d came", sum, n, len(taken), len(produced))
	}
}
