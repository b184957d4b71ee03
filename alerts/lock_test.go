package alerts

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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
// recovered. The next holder of the job sends it again if the turn is over, and what the first one knows does not count
// any more.
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
		same(t, "channel", []string{id + ".message", id + ".recovery"}, slices.Compact(b.sent()))
		if left := b.waiting(); len(left) > 0 {
			t.Errorf("jobs are left: %v", left)
		}
	}
}

// The breaker opens and closes again while its recovery is sent: that is sent too, after it.
func TestOpenedAgainWhileTheRecoveryIsSent(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	id := b.call("shop", breaker.RateLimited(0))
	b.play(16 * time.Minute)
	b.call("shop", breaker.Success())
	second := ""
	b.during("chat.postMessage", func() {
		second = b.call("shop", breaker.RateLimited(time.Minute))
		b.reset("shop")
		b.fetch()
		b.run(b.task(second + ".opened.slack"))
		b.run(b.task(second + ".closed.slack"))
	})
	b.play(time.Hour)
	same(t, "channel", []string{id + ".message", id + ".page", id + ".recovery", second + ".message", second + ".recovery"}, b.sent())
	if open := b.pager.Open(); len(open) > 0 {
		t.Errorf("still open in PagerDuty: %v", open)
	}
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
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
	if err := l.save(ctx, key("record", "slack", "shop"), &record{Posted: true}); err != nil {
		t.Errorf("save: %v", err)
	}
	if r, err := s.record(ctx, key("record", "slack", "shop")); err != nil || !r.Posted {
		t.Errorf("the record is %+v, %v", r, err)
	}
}
