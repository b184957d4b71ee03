//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakelimit"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

var (
	longRunFor  = flag.Duration("longrun", 2*time.Minute, "how long TestLongRun enqueues; it needs up to 6 minutes more to drain")
	longRunSeed = flag.Uint64("longrun.seed", 0, "seed of TestLongRun; 0: a random one")
)

const (
	longDestinations = 50
	longProfileCount = 5
	longKeys         = 5000
	longRetention    = 90 * time.Second // of all ended jobs: memory is to be flat
	longKillEvery    = time.Minute
	longDrain        = 5 * time.Minute // a crash takes up to two minutes of it
)

// longProfiles are the APIs of the long run; destination i calls the one of i modulo
// their number.
var longProfiles = [longProfileCount]fakeapi.Options{
	{},
	{Limiter: fakeapi.FixedWindow{Quota: 8, Window: 20 * time.Second}},
	{Limiter: fakeapi.FixedWindow{Quota: 8, Window: 20 * time.Second}, Hints: fakeapi.RetryAfter},
	{Limiter: fakelimit.TokenBucket{Rate: 1, Burst: 5}, Hints: fakeapi.RateLimit},
	{Limiter: fakeapi.FixedWindow{Quota: 1, Window: 10 * time.Second}, Hints: fakeapi.RetryAfter | fakeapi.Scope}, // per key
}

// longJob is what the long run knows of one job.
type longJob struct {
	dest      string
	after     []string
	uncertain bool        // the enqueue was not acknowledged
	status    jobs.Status // final, or "" while the job may run
	seen      time.Time   // when that was seen
	stops     []longStop
}

// longStop is a time in which no call of a job may arrive: from the acknowledgement of
// a cancel or pause to the request that undoes it, if any.
type longStop struct {
	from, to time.Time
	forGood  bool // a cancel
}

// paused returns the stop by a pause that has not been undone, nil if there is none.
func (j *longJob) paused() *longStop {
	for i, s := range j.stops {
		if s.to.IsZero() && !s.forGood {
			return &j.stops[i]
		}
	}
	return nil
}

// longRun is a fleet under mixed work.
type longRun struct {
	*fleet
	rng   *rand.Rand // of the producer
	dests []string
	apis  []*fakeapi.API

	mu        sync.Mutex
	jobs      map[string]*longJob
	open      []string // ids that have not ended, the oldest first
	processes map[string]*worker
	named     int
	counts    map[string]int   // of what happened, for the verdict
	memory    map[string][]int // KiB of Redis and of the worker that is not killed, in the order of samples
}

// Mixed work goes on while every minute a process or Redis is killed. Each accepted job
// ends, or waits for a stated reason; no call breaks an acknowledged stop; the doctor
// finds nothing; memory does not grow. For an hour:
//
//	go test -tags soak -run TestLongRun -v -timeout 90m ./internal/test/e2e -longrun 1h
func TestLongRun(t *testing.T) {
	r := newLongRun(t)
	for _, name := range []string{"worker a", "worker b"} {
		r.run(name)
	}
	started := time.Now()
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var producers sync.WaitGroup
	producers.Go(func() { r.every(work, 250*time.Millisecond, r.produce) })
	producers.Go(func() { r.every(work, 2*time.Second, r.interfere) })
	watch, unwatch := context.WithCancel(t.Context())
	defer unwatch()
	producers.Go(func() { r.every(watch, 10*time.Second, r.look) })
	producers.Go(func() { r.every(work, min(10*time.Second, *longRunFor/60), r.sample) })

	over := time.After(*longRunFor)
	kill := time.NewTicker(min(longKillEvery, *longRunFor/4))
	defer kill.Stop()
	for n := 0; work.Err() == nil; n++ {
		select {
		case <-over:
			stop()
		case <-kill.C:
			// One worker lives on after the warm-up, so that its memory has a curve.
			victims := []string{"worker a", "redis", "worker a"}
			if time.Since(started) < *longRunFor/8 {
				victims = []string{"worker b"}
			}
			r.kill(victims[n%len(victims)])
		}
	}
	r.drain()
	unwatch()
	producers.Wait()
	r.verdict()
	r.memoryIsFlat()
}

func newLongRun(t *testing.T) *longRun {
	t.Helper()
	seed := *longRunSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-longrun %s -longrun.seed %d", *longRunFor, seed)
	r := &longRun{
		fleet: newFleet(t, redistest.Start(t, redistest.WithAOF()), fakeapi.Options{}),
		rng:   rand.New(rand.NewPCG(seed, 0)),
		jobs:  map[string]*longJob{}, processes: map[string]*worker{}, counts: map[string]int{}, memory: map[string][]int{},
	}
	tokens := map[string]string{}
	for i := range longKeys {
		tokens[fmt.Sprintf("k%d", i)] = fmt.Sprintf("token-%d", i)
	}
	file := filepath.Join(t.TempDir(), "tokens.json")
	if b, err := json.Marshal(tokens); err != nil || os.WriteFile(file, b, 0o600) != nil {
		t.Fatal(err)
	}
	maps.Copy(r.env, map[string]string{
		"JOB_RETENTION": longRetention.String(), "JOB_RETENTION_FAILED": longRetention.String(), "CIRCUIT_BREAKER_COOLDOWN_MS": "3000",
	})
	var urls []string
	for _, o := range longProfiles {
		o.PerToken, o.Light, o.Latency, o.Script = true, true, 20*time.Millisecond, faulty
		api := fakeapi.New(o)
		url, err := api.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Close() })
		urls = append(urls, url)
		r.apis = append(r.apis, api)
	}
	for i := range longDestinations {
		name, profile := fmt.Sprintf("d%02d", i), i%longProfileCount
		r.dests = append(r.dests, name)
		set := func(suffix, value string) { r.env[fmt.Sprintf("DESTINATION_%d_%s", i, suffix)] = value }
		set("NAME", name)
		set("URL", urls[profile])
		set("TIMEOUT", "5s")
		set("CONCURRENCY", "4")
		set("AUTH_TOKEN", "token-of-"+name)
		if profile == longProfileCount-1 {
			set("AUTH_TOKENS_FILE", file)
		}
	}
	r.dest = r.dests[0]
	var err error
	if r.client, err = jobs.NewClient(r.rdb, jobs.WithDestinations(r.dests...), jobs.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	return r
}

// faulty makes some calls fail.
func faulty(n int, _ *http.Request) *fakeapi.Answer {
	switch n % 50 {
	case 7, 23:
		return &fakeapi.Answer{Status: http.StatusInternalServerError}
	case 31:
		return &fakeapi.Answer{Status: http.StatusUnprocessableEntity}
	case 43:
		return &fakeapi.Answer{Delay: 3 * time.Second}
	}
	return nil
}

// every calls do again and again until ctx ends.
func (r *longRun) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do(ctx)
		}
	}
}

// count adds to what happened.
func (r *longRun) count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what] += n
}

// run starts a process under a name.
func (r *longRun) run(name string) {
	r.t.Helper()
	w := r.start()
	r.mu.Lock()
	r.processes[name] = w
	r.mu.Unlock()
}

// kill ends a process, or Redis, and starts it again.
func (r *longRun) kill(name string) {
	r.t.Helper()
	r.count("kill -9 of "+name, 1)
	if name == "redis" {
		r.server.Kill()
		<-time.After(2 * time.Second) // the outage itself
		r.server.Restart()
		return
	}
	r.mu.Lock()
	w := r.processes[name]
	r.mu.Unlock()
	w.stop(syscall.SIGKILL)
	r.run(name)
}

// key draws the key of a job, "" for none. Where the API limits each key, every
// destination has its own ones, and half of the jobs are of a few of them.
func (r *longRun) key(dest string) string {
	i := slices.Index(r.dests, dest)
	const perDestination, hot = longKeys * longProfileCount / longDestinations, 10
	switch {
	case i%longProfileCount != longProfileCount-1 && r.rng.IntN(4) > 0:
		return ""
	case r.rng.IntN(2) == 0:
		return fmt.Sprintf("k%d", i/longProfileCount*perDestination+r.rng.IntN(hot))
	default:
		return fmt.Sprintf("k%d", i/longProfileCount*perDestination+r.rng.IntN(perDestination))
	}
}

// produce enqueues jobs of a kind.
func (r *longRun) produce(ctx context.Context) {
	pick := func() string { return r.dests[r.rng.IntN(len(r.dests))] }
	id := func() jobs.Option { r.named++; return jobs.ID(fmt.Sprintf("long-%d", r.named)) }
	spec := func(dest string, opts ...jobs.Option) *jobs.Spec {
		opts = append(opts, id())
		if key := r.key(dest); key != "" {
			opts = append(opts, jobs.Key(key))
		}
		if r.rng.IntN(2) == 0 {
			opts = append(opts, jobs.Retry(jobs.RetryPolicy{MaxRetries: 3, InitialDelay: time.Second, MaxDelay: 5 * time.Second}))
		}
		return jobs.New(dest, map[string]any{"text": strings.Repeat("x", r.rng.IntN(500))}, opts...)
	}
	var specs []*jobs.Spec
	switch kind := r.rng.IntN(40); kind % 8 {
	case 0: // a family
		parent := spec(pick())
		specs = append(specs, parent, spec(pick(), jobs.After(parent.ID)), spec(pick(), jobs.After(parent.ID)))
	case 1: // a batch
		name, dest := fmt.Sprintf("b%d", r.named), pick()
		for range 5 {
			specs = append(specs, spec(dest, jobs.Batch(name)))
		}
	case 2:
		specs = append(specs, spec(pick(), jobs.Delay(time.Duration(r.rng.IntN(20))*time.Second)))
	case 4:
		dest, n := pick(), 1
		if kind == 4 { // a burst, into a limit
			n = 30
		}
		for range n {
			specs = append(specs, spec(dest))
		}
	case 3:
		specs = append(specs, spec(pick(), jobs.TTL(time.Duration(1+r.rng.IntN(30))*time.Second)))
	default:
		for range 1 + r.rng.IntN(4) {
			specs = append(specs, spec(pick(), jobs.Prioritize([]jobs.Priority{jobs.PriorityHigh, jobs.PriorityDefault, jobs.PriorityLow}[r.rng.IntN(3)])))
		}
	}
	r.mu.Lock()
	for _, s := range specs { // a call may arrive before the answer does
		r.jobs[s.ID] = &longJob{dest: s.Destination, after: s.After, uncertain: true}
	}
	r.mu.Unlock()
	results, err := r.client.EnqueueMany(ctx, specs)
	for i, result := range results {
		if err == nil && result.Err == nil {
			r.accepted(specs[i].ID)
		}
	}
}

func (r *longRun) accepted(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.jobs[id].uncertain = false
	r.open = append(r.open, id)
}

// interfere cancels, pauses and retries some jobs, and pauses a destination for a while.
func (r *longRun) interfere(ctx context.Context) {
	for _, a := range []jobs.Action{jobs.ActionCancel, jobs.ActionPause, jobs.ActionResume} {
		r.mu.Lock()
		var ids []string
		for _, id := range r.open {
			j := r.jobs[id]
			paused := j.paused()
			if (paused != nil) == (a == jobs.ActionResume) && (paused != nil || rand.IntN(20) == 0) && len(ids) < 20 {
				if ids = append(ids, id); paused != nil {
					paused.to = time.Now()
				}
			}
		}
		r.mu.Unlock()
		for id, result := range r.act(ctx, a, ids) {
			if result.Done && a != jobs.ActionResume {
				r.mu.Lock()
				r.jobs[id].stops = append(r.jobs[id].stops, longStop{from: time.Now(), forGood: a == jobs.ActionCancel})
				r.mu.Unlock()
				r.count(string(a), 1)
			}
		}
	}
	d := r.dests[rand.IntN(len(r.dests))]
	if _, err := r.client.PauseDestination(ctx, d); err == nil {
		r.count("pause of a destination", 1)
	}
	<-time.After(time.Second)
	for _, d := range r.dests { // also what an outage left paused
		_, _ = r.client.ResumeDestination(context.WithoutCancel(ctx), d)
	}
}

// act returns the results of ids that are there; Redis may be away.
func (r *longRun) act(ctx context.Context, a jobs.Action, ids []string) map[string]jobs.ActResult {
	out := map[string]jobs.ActResult{}
	if len(ids) == 0 {
		return out
	}
	results, err := r.client.Act(ctx, a, ids)
	if err != nil {
		return out
	}
	for _, result := range results {
		out[result.ID] = result
	}
	return out
}

// look asks after the jobs that have not ended. It comes round well within their
// retention.
func (r *longRun) look(ctx context.Context) {
	r.mu.Lock()
	ids := slices.Clone(r.open)
	r.mu.Unlock()
	ended := map[string]bool{}
	for _, id := range ids {
		j, err := r.client.Get(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			r.t.Errorf("never lost: %s was accepted, has not ended and is gone", id)
		case err != nil:
			continue // Redis is away
		case !j.Status.Final():
			continue
		default:
			r.mu.Lock()
			r.jobs[id].status, r.jobs[id].seen = j.Status, time.Now()
			r.counts["jobs "+string(j.Status)]++
			r.mu.Unlock()
		}
		ended[id] = true
	}
	r.mu.Lock()
	r.open = slices.DeleteFunc(r.open, func(id string) bool { return ended[id] })
	r.mu.Unlock()
}

// drain lets all jobs come to their ends.
func (r *longRun) drain() {
	r.t.Helper()
	deadline := time.Now().Add(longDrain)
	for left := 1; left > 0 && time.Now().Before(deadline); {
		for _, d := range r.dests {
			_, _ = r.client.ResumeDestination(r.t.Context(), d)
			r.mu.Lock()
			for _, j := range r.jobs {
				if paused := j.paused(); paused != nil {
					paused.to = time.Now()
				}
			}
			r.mu.Unlock()
			_, _ = r.client.ActWhere(r.t.Context(), jobs.ActionResume, jobs.Filter{Destination: d})
		}
		<-time.After(5 * time.Second)
		r.mu.Lock()
		left = len(r.open)
		r.mu.Unlock()
	}
}

// verdict holds what was seen against the invariants of docs/invariants.md.
func (r *longRun) verdict() {
	r.t.Helper()
	explainer := explain.New(r.rdb, r.client)
	for _, id := range r.open {
		j, err := r.client.Get(r.t.Context(), id)
		if err != nil {
			r.t.Errorf("%s has not ended: %v", id, err)
			continue
		}
		w, err := explainer.Waiting(r.t.Context(), j)
		if err != nil || w == nil || w.Reason == "" {
			r.t.Errorf("%s is %s without a reason: %+v, %v", id, j.Status, w, err)
			continue
		}
		r.count("jobs that wait at the end: "+w.Reason, 1)
	}
	accepted := map[string]time.Time{} // when a call of each job was first accepted
	var calls []fakeapi.Receipt
	for _, api := range r.apis {
		calls = append(calls, api.Receipts()...)
	}
	slices.SortFunc(calls, func(a, b fakeapi.Receipt) int { return a.At.Compare(b.At) })
	latest := map[string]fakeapi.Receipt{}
	for _, c := range calls {
		r.checkCall(c, latest[c.Key], accepted)
		if latest[c.Key] = c; c.Status/100 == 2 {
			accepted[c.Key] = c.At
		}
	}
	for _, api := range r.apis {
		stats := api.Stats()
		r.count("calls", stats.Calls)
		r.count("calls that were refused", stats.Limited)
	}
	out, stderr, code := r.tidegate("doctor", "--dry-run", "-o", "json")
	var report struct{ Findings []any }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || len(report.Findings) > 0 {
		r.t.Errorf("the doctor says (%d, %v):\n%s%s", code, err, out, stderr)
	}
	for _, what := range []string{"calls that were refused", "jobs " + string(jobs.Completed), "cancel"} {
		if r.counts[what] == 0 {
			r.t.Errorf("there were no %s: that was no test", what)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.counts)) {
		r.t.Logf("%7d %s", r.counts[what], what)
	}
}

// checkCall holds one call against the one before it of the same job.
func (r *longRun) checkCall(c, before fakeapi.Receipt, accepted map[string]time.Time) {
	j := r.jobs[c.Key]
	if j == nil {
		r.t.Errorf("%s was called, and nobody enqueued it", c.Key)
		return
	}
	if before.N > 0 && c.At.Before(before.Done) {
		r.t.Errorf("one run at a time: %s was called at %s, while a call of %s went on until %s", c.Key, c.At, before.At, before.Done)
	}
	if j.status != "" && c.At.After(j.seen) {
		r.t.Errorf("ended for good: %s was %s at %s and called at %s", c.Key, j.status, j.seen, c.At)
	}
	for _, s := range j.stops {
		if c.At.After(s.from) && (s.to.IsZero() || c.At.Before(s.to)) {
			r.t.Errorf("never started after a stop: %s was stopped at %s and called at %s", c.Key, s.from, c.At)
		}
	}
	for _, parent := range j.after {
		if at, ok := accepted[parent]; !ok || at.After(c.At) {
			r.t.Errorf("parents first: %s was called before its parent %s had been accepted", c.Key, parent)
		}
	}
}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

// sample notes how much memory Redis and the worker that is not killed have.
func (r *longRun) sample(ctx context.Context) {
	add := func(name string, kib int) {
		if kib > 0 { // else it is down at the moment
			r.mu.Lock()
			r.memory[name] = append(r.memory[name], kib)
			r.mu.Unlock()
		}
	}
	r.mu.Lock()
	pid := r.processes["worker b"].pid()
	r.mu.Unlock()
	kib := 0
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)); err == nil {
		_, rest, _ := strings.Cut(string(b), "VmRSS:")
		_, _ = fmt.Sscan(rest, &kib)
	}
	add("worker b", kib)
	if info, err := r.rdb.Info(ctx, "memory").Result(); err == nil {
		if found := usedMemory.FindStringSubmatch(info); found != nil {
			bytes, _ := strconv.Atoi(found[1]) // digits
			add("Redis", bytes>>10)
		}
	}
}

// memoryIsFlat fails if memory has grown since the warm-up; a shorter run does not say whether it has.
func (r *longRun) memoryIsFlat() {
	const allowance = 4 << 10 // KiB, of noise
	for name, kib := range r.memory {
		quarter := len(kib) / 4
		if quarter == 0 {
			continue
		}
		early, late := slices.Sorted(slices.Values(kib[quarter : 2*quarter]))[quarter/2], slices.Sorted(slices.Values(kib[3*quarter : 4*quarter]))[quarter/2]
		r.t.Logf("memory of %s: median of the second quarter %d KiB, of the last %d KiB", name, early, late)
		if *longRunFor >= 20*time.Minute && late > early+early/10+allowance {
			r.t.Errorf("memory of %s grows", name)
		}
	}
}
