package alerts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// evictionHarness is some workers whose Redis drops keys when the test says so.
type evictionHarness struct {
	*harness
	is  store.Eviction
	err error
}

func newEvictionHarness(t *testing.T, n int, change ...func(*setup)) *evictionHarness {
	t.Helper()
	h := &evictionHarness{harness: newHarness(t, n, change...), is: store.Eviction{Policy: "noeviction", Limited: true}}
	for _, a := range h.workers {
		h.join(a)
	}
	return h
}

func (h *evictionHarness) join(a *Alerts) {
	a.eviction = func(context.Context) (store.Eviction, error) { return h.is, h.err }
}

// look has all workers look at a minute after start, when Redis has that policy and has dropped so
// many keys.
func (h *evictionHarness) look(minute int, policy string, evicted int64) {
	h.t.Helper()
	h.is = store.Eviction{Policy: policy, Limited: true, Evicted: evicted}
	h.play(time.Duration(minute) * time.Minute)
	for _, a := range h.workers {
		if err := a.notifyEviction(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
	h.fetchAll()
	h.settle()
}

// drops is what Redis says at a look.
type drops struct {
	policy  string
	evicted int64
}

const (
	firstDrop = "redis-evicts-20500101T120100.000" // a minute after start
	mayDrop   = "Redis may drop jobs when its memory is full: its maxmemory-policy is allkeys-lru"
)

// One message an incident, however many workers look and keys go; it ends when the policy is mended
// and no key has gone for a minute.
func TestRedisDropsKeys(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		looks []drops
		want  []seen
	}{
		{"never", []drops{{"noeviction", 0}, {"noeviction", 0}}, nil},
		{"long ago", []drops{{"noeviction", 7}, {"noeviction", 7}}, nil},
		{"policy", []drops{{"noeviction", 0}, {"allkeys-lru", 0}, {"allkeys-lru", 0}, {"allkeys-lru", 90}, {"noeviction", 1066}, {"noeviction", 1066}, {"noeviction", 1066}}, []seen{
			{ID: firstDrop, At: time.Minute, Text: mayDrop},
			{ID: firstDrop + "-over", At: 5 * time.Minute, Reply: firstDrop, Broadcast: true, Text: "Redis keeps its keys again; 1,066 keys dropped since 12:01:00 UTC"},
		}},
		{"keys between two looks", []drops{{"noeviction", 7}, {"noeviction", 8}, {"noeviction", 8}, {"noeviction", 0}}, []seen{
			{ID: firstDrop, At: time.Minute, Text: "Redis has dropped 8 keys, and jobs may be among them"},
			{ID: firstDrop + "-over", At: 2 * time.Minute, Reply: firstDrop, Broadcast: true, Text: "Redis keeps its keys again; 1 key dropped since 12:01:00 UTC"},
		}},
		{"twice", []drops{{"noeviction", 0}, {"allkeys-lru", 0}, {"noeviction", 0}, {"allkeys-lru", 0}}, []seen{
			{ID: firstDrop, At: time.Minute, Text: mayDrop},
			{ID: firstDrop + "-over", At: 2 * time.Minute, Reply: firstDrop, Broadcast: true, Text: "Redis keeps its keys again; 0 keys dropped since 12:01:00 UTC"},
			{ID: "redis-evicts-20500101T120300.000", At: 3 * time.Minute, Text: mayDrop},
		}},
		{"INFO is forbidden", []drops{{"", 0}, {"", 0}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := newEvictionHarness(t, 3)
			for minute, l := range row.looks {
				h.look(minute, l.policy, l.evicted)
			}
			h.play(time.Hour)
			same(t, "channel", row.want, h.channel())
			var paged []string
			for _, s := range row.want {
				switch s.Reply {
				case "":
					paged = append(paged, "trigger "+s.ID+" +"+s.At.String())
				default:
					paged = append(paged, "resolve "+s.Reply+" +"+s.At.String())
				}
			}
			same(t, "PagerDuty", paged, h.paged())
		})
	}
}

// Redis drops the record of the incident, too: the workers remember it, and nothing is sent twice.
func TestRedisDropsTheRecordOfItsDrops(t *testing.T) {
	t.Parallel()
	h := newEvictionHarness(t, 2, withoutPager)
	h.look(0, "noeviction", 0)
	h.look(1, "allkeys-random", 5)
	for minute := 2; minute < 10; minute++ {
		if err := h.rdb.Del(t.Context(), key("evictions")).Err(); err != nil {
			t.Fatal(err)
		}
		h.look(minute, "allkeys-random", int64(5*minute))
	}
	h.look(10, "noeviction", 45)
	h.look(11, "noeviction", 45)
	same(t, "sent", []string{firstDrop, firstDrop + "-over"}, h.sent())
}

// A worker dies after it has recorded the incident, before it has enqueued the alert: another one does.
func TestRecordedDropIsAlwaysReported(t *testing.T) {
	t.Parallel()
	h := newEvictionHarness(t, 1, withoutPager)
	h.look(0, "noeviction", 0)
	dying, err := New(connect(t, h.addr, h.db, h.clock, noEnqueue{}), configured(h.harness).options(t, withoutPager))
	if err != nil {
		t.Fatal(err)
	}
	h.join(dying)
	h.is.Policy = "allkeys-lru"
	h.moveTo(start.Add(time.Minute))
	if err := dying.notifyEviction(t.Context()); err == nil {
		t.Fatal("the alert was enqueued")
	}
	h.look(2, "allkeys-lru", 0)
	same(t, "sent", []string{firstDrop}, h.sent())
}

// noEnqueue lets all scripts with keys of asynq fail.
type noEnqueue struct{}

var errNoEnqueue = errors.New("the worker is dead")

func (noEnqueue) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h noEnqueue) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && strings.HasPrefix(fmt.Sprint(args[3]), "asynq:") {
			cmd.SetErr(errNoEnqueue)
			return errNoEnqueue
		}
		return next(ctx, cmd)
	}
}

func (h noEnqueue) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		one := h.ProcessHook(func(context.Context, redis.Cmder) error { return nil })
		for _, cmd := range cmds {
			if err := one(ctx, cmd); err != nil {
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// Redis that refuses INFO, or is away, is no incident and ends none.
func TestUnknownEviction(t *testing.T) {
	t.Parallel()
	h := newEvictionHarness(t, 1, withoutPager)
	h.look(0, "noeviction", 0)
	h.look(1, "allkeys-lru", 0)
	h.err = redis.ErrClosed
	if err := h.workers[0].notifyEviction(t.Context()); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("away: %v", err)
	}
	h.err = refusedError("NOPERM this user has no permissions to run the 'info' command")
	h.look(5, "", 0)
	same(t, "sent", []string{firstDrop}, h.sent())
}

type refusedError string

func (e refusedError) Error() string { return string(e) }
func (refusedError) RedisError()     {}

// Slack is away while Redis drops keys, and after it: the beginning comes before the end, and
// PagerDuty is not paged for an incident that is over.
func TestDropIsReportedInOrder(t *testing.T) {
	t.Parallel()
	h := newEvictionHarness(t, 2)
	h.slack.SetFault(fakehttp.Dropping().During(20 * time.Minute))
	h.pager.SetFault(fakehttp.Dropping().During(20 * time.Minute))
	h.look(0, "noeviction", 0)
	h.look(1, "allkeys-lru", 3)
	h.look(2, "noeviction", 3)
	h.look(3, "noeviction", 3)
	h.play(2 * time.Hour)
	same(t, "sent", []string{firstDrop, firstDrop + "-over"}, h.sent())
	same(t, "open in PagerDuty", 0, len(h.pager.Open()))
}

// A Redis that fails between two commands of a look is an error of the look.
func TestEvictionThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := newEvictionHarness(t, 1)
	h.look(1, "allkeys-lru", 5)
	a := h.workers[0]
	failing := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = failing.Close() })
	a.store.rdb = failing
	if err := a.notifyEviction(t.Context()); err == nil {
		t.Error("a look without Redis is no error")
	}
}
