package alerts

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

// during calls f once, in the middle of the next call of a method of Slack: before it
// gets there.
func (b *harness) during(method string, f func()) {
	b.line.instead = func(req *http.Request) (*http.Response, error) {
		if strings.HasSuffix(req.URL.Path, method) {
			b.line.instead = nil
			f()
		}
		return nil, nil //nolint:nilnil // the call goes its way
	}
}

// A worker stalls in the middle of a post for so long that its turn ends and its job is
// recovered. The next holder of the job waits until it can be seen whether the
// post has arrived, and what the first one knows does not count any more.
func TestStalledWorker(t *testing.T) {
	t.Parallel()
	for _, stall := range []time.Duration{16 * time.Second, 2 * time.Minute} {
		b := newHarness(t, 2, withoutPager)
		id := b.trip("shop")
		b.during("chat.postMessage", func() {
			b.moveTo(b.now().Add(stall))
			t := b.task(id + ".opened.slack")
			t.due = b.now()
			if stall < 20*time.Second {
				b.run(t) // it is too early to look, and to post
			}
		})
		b.play(10 * time.Minute)
		b.reset("shop")
		b.play(20 * time.Minute)
		same(t, "channel", []string{id + ".message", id + ".recovery-1"}, b.sent())
		if left := b.waiting(); len(left) > 0 {
			t.Errorf("jobs are left: %v", left)
		}
	}
}

// The breaker opens and closes again while its recovery is sent: that is sent too.
func TestReopenedWhileTheRecoveryIsSent(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	id := b.call("shop", breaker.RateLimited(0))
	b.play(16 * time.Minute)
	b.call("shop", breaker.Success())
	b.during("chat.postMessage", func() {
		second := b.trip("shop")
		b.reset("shop")
		b.fetch()
		b.run(b.task(second + ".opened.slack"))
		b.run(b.task(second + ".closed.slack"))
	})
	b.play(time.Hour)
	same(t, "channel", []string{id + ".message", id + ".page", id + ".recovery-1", id + ".recovery-2"}, b.sent())
	if open := b.pager.Open(); len(open) > 0 {
		t.Errorf("still open in PagerDuty: %v", open)
	}
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

// A lock that has ended sends and changes nothing any more, whichever process has it now.
func TestLockEnds(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	s, ctx, name := b.workers[0].store, t.Context(), key("lock", "slack", "shop")
	first, err := s.lock(ctx, name, "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.lock(ctx, name, "job"); !errors.Is(err, errLocked) {
		t.Errorf("the same job has the turn twice: %v", err)
	}
	b.moveTo(start.Add(lockFor - time.Second))
	if err := first.extend(ctx); err != nil {
		t.Errorf("extend: %v", err)
	}
	b.moveTo(start.Add(2*lockFor - 2*time.Second))
	if err := first.save(ctx, "value", "first"); err != nil {
		t.Errorf("save: %v", err)
	}
	b.moveTo(start.Add(2 * lockFor))
	second, err := s.lock(ctx, name, "job")
	if err != nil {
		t.Fatalf("the next one: %v", err)
	}
	if err := second.save(ctx, "value", "second"); err != nil {
		t.Errorf("save: %v", err)
	}
	if err := first.save(ctx, "value", "late"); !errors.Is(err, errLocked) {
		t.Errorf("save after the end: %v", err)
	}
	if err := first.extend(ctx); !errors.Is(err, errLocked) {
		t.Errorf("extend after the end: %v", err)
	}
	first.unlock(ctx)
	if err := second.extend(ctx); err != nil {
		t.Errorf("the one before has ended the turn: %v", err)
	}
	same(t, "value", `"second"`, b.rdb.Get(ctx, "value").Val())
}

// A full Redis gives locks and keeps what is recorded under them, so people are notified.
func TestLockOnAFullRedis(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client(t)
	s := stateStore{rdb: rdb, ns: store.DefaultNamespace, log: slog.New(slog.DiscardHandler)}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := rdb.Set(ctx, "probe", "x", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
	l, err := s.lock(ctx, key("lock", "slack", "shop"), "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.extend(ctx); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := l.save(ctx, s.recordKey("slack", "shop"), &record{Posted: true}); err != nil {
		t.Errorf("save: %v", err)
	}
	if r, err := s.record(ctx, "slack", "shop"); err != nil || !r.Posted {
		t.Errorf("the record is %+v, %v", r, err)
	}
	for _, want := range []bool{true, false} {
		if got, err := s.once(ctx, time.Hour, "look", "shop"); err != nil || got != want {
			t.Errorf("once: %v, %v, want %v", got, err, want)
		}
	}
}
