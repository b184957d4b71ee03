package e2e

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// resumesWithin is how soon after a new master was elected publishing goes on.
const resumesWithin = 10 * time.Second

// replicated is how long after an answer a master that runs has told its replica, on a
// machine that may be busy.
const replicated = 100 * time.Millisecond

// failover is a Redis whose masters can be replaced.
type failover struct {
	rs redisStore
	// dests is published to; all lie on the master that is killed, and so does open,
	// whose breaker is OPEN.
	dests []string
	open  string
	// cut, if there is one, cuts the master off from its replicas a while before.
	cut func()
	// kill kills the master; await returns when another one is at work.
	kill func() (await func())
}

// masterIsKilled kills a master while three workers publish and two producers
// enqueue, and holds what became of each job against what the producers were told.
func masterIsKilled(t *testing.T, o failover) {
	const workers, concurrency, producers = 3, 5, 3
	w := newWide(t, o.rs, append([]string{o.open}, o.dests...))
	w.api.SetLatency(60 * time.Millisecond)
	w.env["RETRY_LOOP_INTERVAL_MS"] = "1000"
	rdb := open(t, o.rs.URL())
	var err error
	if w.client, err = jobs.NewClient(rdb, jobs.WithDestinations(w.dests...), jobs.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	w.rdb = rdb
	var all []*worker
	for range workers {
		all = append(all, w.start())
	}
	w.say("breaker", "trip", o.open, "--for", "10m", "--reason", "it stays open")
	waiting := w.enqueueSpecs([]*jobs.Spec{jobs.New(o.open, 1)})[0]

	p := produce(w, o.dests, producers)
	w.waitAccepted(200, 20*time.Second)
	before := make([]int, workers)
	for i, worker := range all {
		before[i] = len(worker.lines())
	}
	cut := time.Now() // what is written from now on may get lost
	if o.cut != nil {
		o.cut()
		w.waitAccepted(w.api.Stats().Accepted+100, 20*time.Second)
	}
	killed := time.Now()
	await := o.kill()
	dead := time.Now()
	inFlight := w.api.Stats().InFlight
	await()
	elected := time.Now()
	w.waitCalls(func(r fakeapi.Receipt) bool { return r.At.After(elected) }, resumesWithin)
	// Two seconds of ordinary work.
	w.waitAccepted(w.api.Stats().Accepted+200, 20*time.Second)
	accounts := p.finish()

	var resumed time.Time // the first call that was begun with the new master
	for _, r := range w.api.Receipts() {
		if r.At.After(killed.Add(time.Second)) && (resumed.IsZero() || r.At.Before(resumed)) {
			resumed = r.At
		}
	}
	if late := resumed.Sub(elected); late > resumesWithin {
		t.Errorf("publishing went on %s after the election", late)
	}
	forgotten := w.recoverForgotten(t, all, o.dests)
	lost, doubtful, stored := w.settleAccounts(t, accounts, cut, dead)
	duplicates := 0
	for _, n := range w.api.Accepted() {
		duplicates += n - 1
	}
	// Of a call that had ended Redis may have lost the word, like any other.
	most := 0
	for _, r := range w.api.Receipts() {
		if r.At.Before(dead) && (r.Done.IsZero() || r.Done.After(cut.Add(-replicated))) {
			most++
		}
	}
	if duplicates > most {
		t.Errorf("%d calls were made twice; %d were in flight at the kill, or had just ended", duplicates, most)
	}
	if o.cut != nil && (lost == 0 || forgotten == 0) {
		t.Error("Redis lost nothing: the test shows less than it should")
	}
	if s, err := breaker.DefaultNamespace.Get(t.Context(), rdb, o.open); err != nil || s.State != breaker.Open || s.Reason != "it stays open" {
		t.Errorf("the breaker that was OPEN is %+v, %v", s, err)
	}
	if n := w.api.Accepted()[waiting]; n != 0 || w.job(waiting).Status != jobs.Pending {
		t.Errorf("the job that waits for it is %s and was accepted %d times", w.job(waiting).Status, n)
	}
	for i, worker := range all {
		checkOutage(t, worker, before[i], append([]string{o.open}, o.dests...))
	}
	t.Logf("elected %s after the kill, publishing %s after it; %d jobs enqueued, %d of them in doubt at first, %d lost by Redis, %d stored without a word; %d in flight at the kill, the end of %d forgotten by Redis, %d calls twice",
		elected.Sub(killed).Round(time.Millisecond), resumed.Sub(killed).Round(time.Millisecond),
		len(accounts), doubtful, lost, stored, inFlight, forgotten, duplicates)
	for _, worker := range all {
		if code, _ := worker.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// checkOutage looks for one line about the loss of Redis and one about its return for
// each of the destinations, which lay on the master that was killed. Lines of before
// are left out.
func checkOutage(t *testing.T, w *worker, before int, dests []string) {
	t.Helper()
	count := func(msg, dest string) (n int) {
		for _, line := range w.lines()[before:] {
			if strings.Contains(line, `"msg":"`+msg) && strings.Contains(line, `"destination":"`+dest+`"`) {
				n++
			}
		}
		return n
	}
	for _, dest := range dests {
		redistest.Await(t, 2*time.Minute, "worker logs that Redis is back for "+dest, func() bool { return count("redis answers again", dest) > 0 })
		if loss, back := count("redis does not answer", dest), count("redis answers again", dest); loss != 1 || back != 1 {
			t.Errorf("worker %d tells of %d losses and %d returns of Redis for %s", w.pid(), loss, back, dest)
		}
		if n := count("redis refuses", dest); n != 0 {
			t.Errorf("worker %d tells %d times that Redis refuses something for %s", w.pid(), n, dest)
		}
	}
	if n := len(w.lines()) - before; n > 50 {
		t.Errorf("worker %d wrote %d lines about it", w.pid(), n)
	}
}

// open opens a Redis as the commands do.
func open(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	rdb, closer, err := redisconn.Open(t.Context(), url, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closer.Close() })
	return rdb
}

// account is what a producer knows of a job.
type account struct {
	id, dest string
	acked    time.Time // when Redis said that it has the job; zero if it never did
	doubtful bool      // a try ended with an error: it may have the job, or not
	stored   bool      // it had, as the next try showed
}

// producer enqueues until it is told to finish, and never gives up a job that Redis
// has not acknowledged.
type producer struct {
	stop  chan struct{}
	group sync.WaitGroup
	mu    sync.Mutex
	out   []account
}

func produce(w *wide, dests []string, n int) *producer {
	p := &producer{stop: make(chan struct{})}
	for i := range n {
		p.group.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for k := 0; ; k++ {
				select {
				case <-p.stop:
					return
				case <-tick.C:
				}
				a := account{id: fmt.Sprintf("p%d-%d", i, k), dest: dests[k%len(dests)]}
				p.enqueue(w, &a)
				p.mu.Lock()
				p.out = append(p.out, a)
				p.mu.Unlock()
			}
		})
	}
	return p
}

// enqueue tries until Redis says that it has the job.
func (p *producer) enqueue(w *wide, a *account) {
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		j, err := w.client.Enqueue(ctx, jobs.New(a.dest, 1, jobs.ID(a.id)))
		cancel()
		if err == nil {
			a.acked, a.stored = time.Now(), j.Duplicate
			return
		}
		a.doubtful = true
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		<-pause.C
	}
}

func (p *producer) finish() []account {
	close(p.stop)
	p.group.Wait()
	return p.out
}

// recoverForgotten runs again what Redis takes for running, because it has forgotten
// that it ended, and returns how many those are. They would be found within two
// minutes: age the leases, and let a new worker look, which it does when it starts.
func (w *wide) recoverForgotten(t *testing.T, workers []*worker, dests []string) int {
	t.Helper()
	backlog := func() (all, running int) {
		for _, s := range w.stats(dests...) {
			all, running = all+s.Backlog, running+s.Counts[jobs.Running]
		}
		return all, running
	}
	var since time.Time // for so long nothing but that has been left
	redistest.Await(t, 2*time.Minute, "only what Redis has forgotten the end of is left", func() bool {
		all, running := backlog()
		if all != running || w.api.Stats().InFlight > 0 {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return all == 0 || time.Since(since) > time.Second
	})
	aged := 0
	for _, worker := range workers {
		aged += len(w.ageLeasesOf(worker.pid(), dests...))
	}
	if aged == 0 {
		return 0
	}
	w.start()
	redistest.Await(t, 2*time.Minute, "they have run again", func() bool {
		w.hurry(dests...)
		all, _ := backlog()
		return all == 0
	})
	return aged
}

// settleAccounts waits until all jobs that are in Redis have completed, and counts
// those that are not. Redis loses only what it had acknowledged just before the kill.
func (w *wide) settleAccounts(t *testing.T, accounts []account, cut, dead time.Time) (lost, doubtful, stored int) {
	t.Helper()
	var kept []string
	for _, a := range accounts {
		if a.doubtful {
			doubtful++
		}
		if a.stored {
			stored++
		}
		_, err := w.client.Get(t.Context(), a.id)
		switch {
		case err == nil:
			kept = append(kept, a.id)
		case !errors.Is(err, jobs.ErrNotFound):
			t.Fatal(err)
		default:
			lost++
			if a.acked.Before(cut.Add(-replicated)) || a.acked.After(dead.Add(replicated)) {
				t.Errorf("job %s, which Redis had acknowledged %s before the master was dead, is gone", a.id, dead.Sub(a.acked))
			}
		}
	}
	t.Cleanup(func() { w.explainUnfinished(kept) })
	w.waitCompleted(kept, 20*time.Second)
	accepted := w.api.Accepted()
	for _, id := range kept {
		if accepted[id] == 0 {
			t.Errorf("job %s is completed and was never accepted", id)
		}
	}
	return lost, doubtful, stored
}

// explainUnfinished says of a test that has failed what became of the jobs that did not
// complete.
func (f *fleet) explainUnfinished(ids []string) {
	if !f.t.Failed() {
		return
	}
	for _, id := range ids {
		j := f.job(id)
		if j.Status == jobs.Completed {
			continue
		}
		history, err := f.client.History(context.Background(), id)
		f.t.Logf("%s is %s by %s: %+v %v", id, j.Status, j.Worker, history, err)
		for _, r := range f.api.Receipts() {
			if r.Key == id {
				f.t.Logf("its call %d took from %s to %s", r.N, r.At, r.Done)
			}
		}
	}
}

// waitCalls waits until the API has got such a call.
func (f *fleet) waitCalls(such func(fakeapi.Receipt) bool, d time.Duration) {
	f.t.Helper()
	redistest.Await(f.t, d, "a call with the new master", func() bool {
		for _, r := range f.api.Receipts() {
			if such(r) && r.Status < http.StatusBadRequest {
				return true
			}
		}
		return false
	})
}
