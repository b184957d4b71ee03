package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

func TestStats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(t, "stats").want(t, 0, "no destination is known; start one with: tidegate worker\n", "")
	if out := b.run(t, "stats", "-o", "json").ok(t); out != "{\"items\":[],\"next\":\"\"}\n" {
		t.Errorf("empty stats %q", out)
	}
	b.run(t, "stats", "-d", "blog").want(t, 2, "", "tidegate: destination \"blog\" is not known; none is\n")

	b.env = append(b.env, append([]string{"DESTINATION_1_NAME=blog", "DESTINATION_1_URL=https://blog.example.com"}, shop...)...)
	b.serve(t, "shop")
	b.enqueue(t, "", "a", "b")
	b.enqueue(t, "--priority high", "c")
	b.enqueue(t, "--delay 2h", "d")
	b.enqueue(t, "--ttl 0", "e")
	b.run(t, "pause", "b").ok(t)
	b.run(t, "cancel", "c").ok(t)
	b.run(t, "breaker", "trip", "shop").ok(t)
	b.run(t, "queue", "pause", "blog").ok(t)

	want := regexp.MustCompile(`^DESTINATION  BREAKER  QUEUE   WORKER SEEN  BACKLOG  OLDEST  PENDING  PAUSED  CANCELLED  EXPIRED  DETAIL
blog         CLOSED   paused  never        0        -       0        0       0          0        paused by \S+
shop         OPEN     open    [0-9ms]+ ago +3        [0-9ms]+ +2        1       1          1        opened by hand by \S+; jobs of shop wait until: tidegate breaker reset shop
$`)
	if out := b.run(t, "stats").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if out := b.run(t, "stats", "--destination", "shop").ok(t); strings.Contains(out, "blog") || !strings.Contains(out, "\nshop ") {
		t.Errorf("printed\n%s", out)
	}

	doc := decode[ops.Page[ops.Stats]](t, b.run(t, "stats", "-o", "json").ok(t))
	if len(doc.Items) != 2 || doc.Next != "" {
		t.Fatalf("document %+v", doc)
	}
	blog, shop := doc.Items[0], doc.Items[1]
	if blog.Destination != "blog" || !blog.Paused || blog.WorkersSeenAt != nil || blog.OldestPendingAt != nil || blog.Breaker.State != breaker.Closed {
		t.Errorf("blog %+v", blog)
	}
	if shop.Backlog != 3 || shop.Paused || shop.WorkersSeenAt == nil || shop.OldestPendingAt == nil || shop.OldestPendingAge < 0 || shop.OldestPendingAge > 600 ||
		shop.Counts[jobs.Pending] != 2 || shop.Counts[jobs.Expired] != 1 || shop.Breaker.State != breaker.Open || !shop.Breaker.UntilReset {
		t.Errorf("shop %+v", shop)
	}
}

// Workers that disagree are named beside the figures.
func TestStatsNamesWorkersThatDisagree(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	rdb := b.server.Client(t)
	for name, hash := range map[string]string{"w1": "a", "w2": "b"} {
		said := fmt.Sprintf(`{"seen_at":%d,"destinations":["shop"],"settings":{"shop":{"rate":%q}}}`, time.Now().UnixMilli(), hash)
		if err := rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), name, said).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "tidegate: warning: workers disagree on the rate of shop: w1 / w2\n"
	if got := b.run(t, "stats"); got.stderr != want || got.status != 0 {
		t.Errorf("status %d, stderr %q, want %q", got.status, got.stderr, want)
	}
}

// A destination that no worker reaches does not look healthy in any command.
func TestUnreachableIsShown(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a", "b")
	said := fmt.Sprintf(`{"seen_at":%d,"destinations":["shop"],"unreachable":{"shop":{"since":%d,"problem":"no such host"}}}`,
		time.Now().UnixMilli(), time.Now().Add(-time.Minute).UnixMilli())
	if err := b.server.Client(t).HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "w1", said).Err(); err != nil {
		t.Fatal(err)
	}
	const want = `no worker reaches it since [-0-9: ]+: no such host`
	for _, c := range []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{[]string{"stats"}, 0, "UNREACHABLE: " + want + "; 2 jobs wait\n", "warning: shop is unreachable: " + want},
		{[]string{"stats", "-o", "json"}, 0, `"unreachable":\{"since":"[^"]+","problem":"no such host"\}`, `"warning":"shop is unreachable: `},
		{[]string{"breaker", "list"}, 0, "UNREACHABLE: " + want, ""},
		{[]string{"breaker", "get", "shop"}, 0, "state +CLOSED", "warning: shop is unreachable: " + want + "; 2 jobs wait"},
		{[]string{"breaker", "get", "shop/alice"}, 0, "state +CLOSED", "warning: shop is unreachable: " + want},
		{[]string{"doctor"}, 1, `unreachable +tidegate:shop +2 +no +- +jobs wait, and no worker reaches shop since \S+: no such host`, "1 finding was not repaired"},
		{[]string{"doctor", "--dry-run"}, 1, `unreachable +tidegate:shop`, "tidegate: no run repairs what was found: see to it\n"},
	} {
		got := b.run(t, c.args...)
		if got.status != c.status || !regexp.MustCompile(c.stdout).MatchString(got.stdout) || !regexp.MustCompile(c.stderr).MatchString(got.stderr) {
			t.Errorf("%q: status %d, printed\n%s%s", c.args, got.status, got.stdout, got.stderr)
		}
	}
}

func TestQueuePause(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "queue", "resume", "shop").want(t, 0, "shop was not paused\n", "")
	b.run(t, "queue", "pause", "shop").want(t, 0, "shop is paused: its jobs wait until: tidegate queue resume shop\n", "")
	b.run(t, "queue", "pause", "shop").want(t, 0, "shop was paused already; its jobs wait until: tidegate queue resume shop\n", "")
	b.run(t, "queue", "pause", "shop", "-o", "json").want(t, 0, `{"destination":"shop","paused":true,"changed":false}`+"\n", "")
	b.run(t, "queue", "resume", "shop", "-o", "json").want(t, 0, `{"destination":"shop","paused":false,"changed":true}`+"\n", "")
	b.run(t, "queue", "pause", "shop").ok(t)
	b.run(t, "queue", "resume", "shop").want(t, 0, "shop is resumed\n", "")
}
