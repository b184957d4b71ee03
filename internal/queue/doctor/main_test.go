package doctor_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// patient is a Redis of its own with one destination, served by a worker.
type patient struct {
	t      *testing.T
	ctx    context.Context
	rdb    redis.UniversalClient
	client *jobs.Client
	dest   string
	queue  string
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	return patientOn(t, redistest.Database(t).Client(t))
}

func patientOn(t *testing.T, rdb redis.UniversalClient) *patient {
	t.Helper()
	p := &patient{t: t, ctx: context.Background(), rdb: rdb, dest: "shop"}
	p.queue = store.DefaultNamespace.Queue(p.dest, store.Default)
	var err error
	p.client, err = jobs.NewClient(rdb, jobs.WithDestinations(p.dest, "other"), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	p.alive(p.dest, time.Second-store.WorkerSilence) // however slow the test is
	return p
}

// alive sets the age of a worker's heartbeat.
func (p *patient) alive(dest string, ago time.Duration) {
	p.t.Helper()
	at := time.Now().Add(-ago).UnixMilli()
	p.must(p.rdb.HSet(p.ctx, store.DefaultNamespace.DestinationsKey(), dest, at).Err())
	p.must(p.rdb.HSet(p.ctx, store.DefaultNamespace.WorkersKey(), "host:"+dest, fmt.Sprintf(`{"seen_at":%d,"destinations":[%q]}`, at, dest)).Err())
}

func (p *patient) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *patient) enqueue(id string, opts ...jobs.Option) string {
	p.t.Helper()
	_, err := p.client.Enqueue(p.ctx, jobs.New(p.dest, map[string]int{"n": 1}, append(opts, jobs.ID(id))...))
	p.must(err)
	return id
}

func (p *patient) set(id string, fields ...any) {
	p.t.Helper()
	p.must(p.rdb.HSet(p.ctx, store.TaskKey(p.queue, id), fields...).Err())
}

func (p *patient) field(id, name string) string {
	return p.rdb.HGet(p.ctx, store.TaskKey(p.queue, id), name).Val()
}

// index is where jobs of a state are.
func (p *patient) index(state string) string {
	switch state {
	case store.StateScheduled:
		return store.ScheduledKey(p.queue)
	case store.StateRetry:
		return store.RetryKey(p.queue)
	case store.StateCompleted:
		return store.CompletedKey(p.queue)
	}
	return store.ParkedKey(p.queue, state)
}

// score is a score as it stands in the index of a state, for an hour from now.
func score(state string) float64 {
	at := time.Now().Add(time.Hour)
	if state == store.StateAccepted {
		return float64(at.UnixMilli())
	}
	if state == store.StateScheduled || state == store.StateRetry || state == store.StateCompleted {
		return float64(at.Unix())
	}
	return float64(time.Now().UnixMilli())
}

// in makes a job that is in a state as it should be.
func (p *patient) in(state, id string, opts ...jobs.Option) string {
	p.t.Helper()
	p.enqueue(id, opts...)
	switch state {
	case store.StatePending:
		return id
	case store.StateActive:
		p.take(id)
		p.lease(id, store.Lease)
		return id
	case store.StateAccepted:
		p.set(id, "available_at", time.Now().Add(time.Hour).UnixMilli())
	case store.StateScheduled, store.StateRetry:
		at := time.Now().Add(time.Hour).UnixMilli()
		p.set(id, "available_at", at)
		p.zadd(store.DueKey(p.queue), float64(at), id)
	case store.StatePaused:
		p.set(id, "resume", "pending")
	case store.StateWaiting:
		p.set(id, "waits", 1, "after:someone", "1")
	case store.StateCompleted, store.StateFailed, store.StateCancelled, store.StateExpired:
		p.set(id, "ended_at", time.Now().UnixMilli())
	}
	p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, id).Err())
	if state == store.StateHeld {
		p.set(id, "key", "k")
		p.zadd(store.HeldJobsKey(p.queue, "k"), 1000*score(state), id)
		p.zadd(store.HeldIndexKey(p.queue), score(state), "k")
	}
	p.set(id, "state", state)
	p.zadd(p.index(state), score(state), id)
	return id
}

// take puts a job of the pending list in flight, without a lease.
func (p *patient) take(id string) {
	p.t.Helper()
	p.must(p.rdb.LRem(p.ctx, store.PendingKey(p.queue), 1, id).Err())
	p.must(p.rdb.LPush(p.ctx, store.ActiveKey(p.queue), id).Err())
	p.set(id, "state", "active", "run", "r1", "by", "w", "started_at", time.Now().UnixMilli())
}

func (p *patient) lease(id string, left time.Duration) {
	p.zadd(store.LeaseKey(p.queue), float64(time.Now().Add(left).Unix()), id)
}

func (p *patient) zadd(key string, score float64, member string) {
	p.t.Helper()
	p.must(p.rdb.ZAdd(p.ctx, key, redis.Z{Score: score, Member: member}).Err())
}

func (p *patient) zrem(key string, member string) {
	p.t.Helper()
	if n, err := p.rdb.ZRem(p.ctx, key, member).Result(); err != nil || n != 1 {
		p.t.Fatalf("%s was not in %s (%v)", member, key, err)
	}
}

func (p *patient) run(o doctor.Options) *doctor.Report {
	p.t.Helper()
	r, err := doctor.Run(p.ctx, p.rdb, o)
	p.must(err)
	return r
}

// everything is all that Redis holds.
func (p *patient) everything() map[string]string {
	p.t.Helper()
	out := map[string]string{}
	for _, key := range p.rdb.Keys(p.ctx, "*").Val() {
		switch p.rdb.Type(p.ctx, key).Val() {
		case "hash":
			out[key] = fmt.Sprint(p.rdb.HGetAll(p.ctx, key).Val())
		case "list":
			out[key] = fmt.Sprint(p.rdb.LRange(p.ctx, key, 0, -1).Val())
		case "set":
			members := p.rdb.SMembers(p.ctx, key).Val()
			slices.Sort(members)
			out[key] = fmt.Sprint(members)
		case "zset":
			out[key] = fmt.Sprint(p.rdb.ZRangeWithScores(p.ctx, key, 0, -1).Val())
		default:
			out[key] = p.rdb.Get(p.ctx, key).Val()
		}
	}
	return out
}

// heal looks without and with repair, and once more: it must find want, "kind ids"
// each, and nothing the last time.
func (p *patient) heal(want ...string) *doctor.Report {
	p.t.Helper()
	before := p.everything()
	dry := p.run(doctor.Options{DryRun: true})
	if after := p.everything(); !maps.Equal(before, after) {
		p.t.Errorf("a dry run has changed something")
	}
	found := p.run(doctor.Options{})
	if diff := cmp.Diff(dry, found, cmpopts.IgnoreFields(doctor.Finding{}, "Repaired")); diff != "" {
		p.t.Errorf("a dry run and a repair report different things (-dry +repair):\n%s", diff)
	}
	for _, f := range dry.Findings {
		if f.Repaired {
			p.t.Errorf("repaired in a dry run: %+v", f)
		}
	}
	if diff := cmp.Diff(want, short(found)); diff != "" {
		p.t.Errorf("findings (-want +got):\n%s", diff)
	}
	if again := p.run(doctor.Options{}); len(again.Findings) > 0 {
		p.t.Errorf("after the repair there is still: %+v", again.Findings)
	}
	return found
}

// short is what was found as "kind ids".
func short(r *doctor.Report) []string {
	var out []string
	for _, f := range r.Findings {
		ids := slices.Sorted(slices.Values(f.Examples))
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", f.Kind, strings.Join(ids, " "))))
		if f.Count != len(ids) && len(ids) > 0 {
			out = append(out, fmt.Sprintf("%d of %s", f.Count, f.Kind))
		}
	}
	return out
}

func (p *patient) pending() []string {
	return p.rdb.LRange(p.ctx, store.PendingKey(p.queue), 0, -1).Val()
}

func (p *patient) wantPending(want ...string) {
	p.t.Helper()
	if diff := cmp.Diff(want, p.pending(), cmpopts.EquateEmpty()); diff != "" {
		p.t.Errorf("the pending list, its back first (-want +got):\n%s", diff)
	}
}

func (p *patient) wantState(id, state string) {
	p.t.Helper()
	if got := p.field(id, "state"); got != state {
		p.t.Errorf("%s is %s, want %s", id, got, state)
	}
}

// wantNote checks that the history ends with a repair.
func (p *patient) wantNote(id, status string) {
	p.t.Helper()
	h, err := p.client.History(p.ctx, id)
	p.must(err)
	for _, e := range h {
		if e.Event == "repaired" && string(e.Status) == status && e.By == "doctor" && e.Detail != "" {
			return
		}
	}
	p.t.Errorf("the history of %s has no repair to %s: %+v", id, status, h)
}

// wantScore checks a score, in full digits.
func (p *patient) wantScore(key, id, want string) {
	p.t.Helper()
	score, err := p.rdb.ZScore(p.ctx, key, id).Result()
	if err != nil || strconv.FormatFloat(score, 'f', -1, 64) != want {
		p.t.Errorf("%s in %s: %f, %v; want %s", id, key, score, err, want)
	}
}
