package alerts

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
)

// Thirty keys are limited within seconds: that is one message, which follows them, and
// one reply when none is limited any more.
func TestKeysAreOneMessage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 3)
	for i := range 30 {
		b.play(time.Duration(i) * 400 * time.Millisecond)
		b.trip(fmt.Sprintf("shop/k%02d", i))
	}
	b.play(20 * time.Second)
	got := b.channel()
	if len(got) != 1 {
		t.Fatalf("channel: %+v", got)
	}
	same(t, "the first message", seen{
		ID: got[0].ID, At: 5 * time.Second, Edits: 2, Text: "shop: 30 keys are rate limited (k00, k01, k02, …); 0 jobs wait",
	}, got[0])
	if !strings.HasPrefix(got[0].ID, "shop.keys-") || !strings.HasSuffix(got[0].ID, ".message") {
		t.Errorf("id %s", got[0].ID)
	}
	for i := range 30 {
		b.play(5*time.Minute + time.Duration(i)*time.Second)
		b.reset(fmt.Sprintf("shop/k%02d", i))
	}
	ended := 5*time.Minute + 30*time.Second // when that is looked at
	b.play(ended + time.Minute - time.Millisecond)
	same(t, "within a minute after the last key", 1, len(b.channel()))
	b.play(time.Hour)
	got = b.channel()
	if len(got) != 2 {
		t.Fatalf("channel: %+v", got)
	}
	same(t, "at the end", "shop: no key is rate limited any more, after 5 min 30 s: 0 jobs wait", got[0].Text)
	same(t, "the reply", seen{
		ID: strings.TrimSuffix(got[0].ID, "message") + "recovery", At: ended + time.Minute, Reply: got[0].ID, Text: got[1].Text,
	}, got[1])
	if blocks := string(b.slack.Messages()[1].Blocks); !strings.Contains(blocks, "30") {
		t.Errorf("the reply does not count the incidents: %s", blocks)
	}
	same(t, "calls of PagerDuty", 0, b.pager.Calls())
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

// A key is limited and free again before anybody looks.
func TestShortIncidentOfAKey(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	b.play(time.Second)
	b.trip("shop/alice")
	b.play(2 * time.Second)
	b.reset("shop/alice")
	b.play(time.Hour)
	got := b.channel()
	if len(got) != 2 || got[1].Reply != got[0].ID || got[1].At != 65*time.Second {
		t.Errorf("channel: %+v", got)
	}
}

// A key within a minute after the last one belongs to the same message, one that is
// later to another.
func TestKeysWithinAMinute(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	b.trip("shop/alice")
	b.play(10 * time.Second)
	b.reset("shop/alice")
	b.play(50 * time.Second)
	b.trip("shop/bob")
	b.play(70 * time.Second)
	b.reset("shop/bob")
	b.play(20 * time.Minute)
	same(t, "messages", 2, len(b.channel()))
	b.trip("shop/carol")
	b.play(30 * time.Minute)
	b.reset("shop/carol")
	b.play(time.Hour)
	got := b.channel()
	if len(got) != 4 || got[3].Reply != got[2].ID || got[0].ID == got[2].ID {
		t.Errorf("channel: %+v", got)
	}
}

// A key that is limited for hours makes no jobs but those of a look a minute, and no
// edits where nothing changes.
func TestLimitedKeyIsQuiet(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	for i := range 4 {
		b.play(time.Duration(i) * 15 * time.Second)
		b.trip(fmt.Sprint("shop/k", i))
	}
	b.play(2 * time.Minute)
	jobs, edits := len(b.tasks), b.channel()[0].Edits
	for i := range 60 {
		b.play(2*time.Minute + time.Duration(i)*time.Minute)
		b.lookAround()
	}
	b.play(2 * time.Hour)
	if n := len(b.tasks) - jobs; n > 60 {
		t.Errorf("%d jobs in an hour", n)
	}
	same(t, "edits", edits, b.channel()[0].Edits)
	if left := b.waiting(); len(left) > 0 {
		t.Errorf("jobs are left: %v", left)
	}
}

var forGood = breaker.Unauthorized().WithReason("invalid_grant", true)

// Keys whose credentials only a person can renew share one message and one page, whatever other
// keys do; both end with the last of them.
func TestRefusedKeysAreOnePage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 3)
	b.trip("shop/limited")
	for i := range 30 {
		b.play(time.Duration(i) * 400 * time.Millisecond)
		b.call(fmt.Sprintf("shop/u%02d", i), forGood)
	}
	b.call("shop/static", breaker.Unauthorized())
	b.play(20 * time.Second)
	got := b.channel()
	if len(got) != 3 {
		t.Fatalf("channel: %+v", got)
	}
	same(t, "limited keys", "shop: 1 key is rate limited (limited); 0 jobs wait", got[0].Text)
	same(t, "refused keys", "shop: 30 users must sign in again, and the token of 1 key is refused (u00, u01, u02, …)", got[1].Text)
	id := strings.TrimSuffix(got[1].ID, ".message")
	if !strings.HasPrefix(id, "shop.refused-") || got[2].ID != id+".page" || got[2].Reply != got[1].ID {
		t.Errorf("channel: %+v", got)
	}
	if _, open := b.pager.Open()[id]; !open || len(b.pager.Open()) != 1 {
		t.Errorf("there is not 1 page about %s: %v", id, b.paged())
	}
	b.play(10 * time.Minute)
	for i := range 29 {
		b.reset(fmt.Sprintf("shop/u%02d", i))
	}
	b.reset("shop/static")
	b.play(20 * time.Minute)
	same(t, "the last of them", "shop: 1 user must sign in again (u29)", b.channel()[1].Text)
	same(t, "pages while one is refused", 1, len(b.pager.Open()))
	b.reset("shop/u29")
	b.play(30 * time.Minute)
	got = b.channel()
	if len(got) != 4 || got[3].ID != id+".recovery" || got[3].Text != "shop: all keys have valid tokens again, after 20 min 5 s" {
		t.Errorf("channel: %+v", got)
	}
	if incidents := b.pager.Incidents(); len(incidents) != 1 || incidents[0].State != fakepager.Resolved {
		t.Errorf("incidents in PagerDuty: %+v", incidents)
	}
	// Later ones page anew.
	b.call("shop/u03", forGood)
	b.play(40 * time.Minute)
	same(t, "pages of the next refusal", 1, len(b.pager.Open()))
}

// Credentials that the next token mends do not page.
func TestRefusedKeyDoesNotPage(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.call("shop/alice", breaker.Unauthorized())
	b.play(time.Hour)
	b.reset("shop/alice")
	b.play(2 * time.Hour)
	same(t, "calls of PagerDuty", 0, b.pager.Calls())
	if got := b.channel(); len(got) != 2 || got[0].Text != "shop: all keys have valid tokens again, after 1 h" {
		t.Errorf("channel: %+v", got)
	}
}

// The incident of a key ends while no worker lives: those that start later resolve its page.
func TestPageOfAKeyThatEndedUnseen(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	b.call("shop/alice", forGood)
	b.play(10 * time.Second)
	same(t, "pages", 1, len(b.pager.Open()))
	b.dead = true
	b.reset("shop/alice")
	b.dead, b.workers = false, nil
	b.play(10 * time.Minute)
	b.worker()
	for range 3 {
		b.lookAround()
		b.play(b.elapsed() + time.Minute)
	}
	same(t, "pages after the start", 0, len(b.pager.Open()))
	if got := b.channel(); len(got) != 3 || !strings.Contains(got[2].ID, ".recovery") {
		t.Errorf("channel: %+v", got)
	}
}

// A key's page is resolved however its incident goes on and ends: credentials can be refused for
// good only at a probe, and a later probe can be refused for another reason.
func TestPageOfAKeyIsResolved(t *testing.T) {
	t.Parallel()
	const key = "shop/alice"
	refused := breaker.Unauthorized().WithReason("answered 401", false)
	for name, outcomes := range map[string][]breaker.Outcome{
		"at once":         {forGood},
		"at a probe":      {refused, forGood},
		"then for a time": {forGood, refused},
		"then a limit":    {forGood, breaker.RateLimited(time.Minute)},
	} {
		for end, by := range map[string]func(*harness){
			"a success": func(b *harness) { b.call(key, breaker.Success()) },
			"a reset":   func(b *harness) { b.reset(key) },
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				b := newHarness(t, 2)
				for _, outcome := range outcomes {
					b.call(key, outcome)
					b.play(b.elapsed() + time.Minute)
				}
				if len(b.pager.Open()) != 1 {
					t.Errorf("there is not 1 page: %v", b.paged())
				}
				by(b)
				b.play(b.elapsed() + 10*time.Minute)
				if incidents := b.pager.Incidents(); len(incidents) != 1 || incidents[0].State != fakepager.Resolved {
					t.Errorf("incidents in PagerDuty at the end: %+v", incidents)
				}
				if left := b.waiting(); len(left) > 0 {
					t.Errorf("jobs are left: %v", left)
				}
			})
		}
	}
}

// A token server that is away is not taken for tokens that are refused.
func TestTokenServerAway(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	missing := breaker.Unauthorized().WithReason("the token server answered 503", false).WithRetry(5 * time.Minute)
	b.call("shop/alice", missing)
	b.call("shop", missing)
	b.play(10 * time.Second)
	var texts []string
	for _, m := range b.channel() {
		texts = append(texts, m.Text)
	}
	same(t, "messages", []string{
		"shop: token server unreachable since 12:00:00 UTC: there is no access token (the token server answered 503); 0 jobs wait",
		"shop: 1 key waits for the token server (alice)",
	}, texts)
	same(t, "pages", 0, b.pager.Calls())
}

// Keys that wait for the token server for too long page once.
func TestTokenServerAwayFromKeysPages(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	b.call("shop/alice", breaker.Unauthorized().WithReason("the token server answered 503", false).WithRetry(5*time.Hour))
	look := func(until time.Duration) {
		for b.elapsed() < until {
			b.lookAround()
			b.play(b.elapsed() + time.Minute)
		}
	}
	look(14 * time.Minute)
	same(t, "pages before 15 minutes", 0, b.pager.Calls())
	look(30 * time.Minute)
	got := b.channel()
	if len(b.pager.Open()) != 1 || got[len(got)-1].Text != "@ann shop: 1 key waits for the token server (alice)" {
		t.Errorf("there is not 1 page: %v; channel: %+v", b.paged(), got)
	}
	b.reset("shop/alice")
	look(40 * time.Minute)
	if incidents := b.pager.Incidents(); len(incidents) != 1 || incidents[0].State != fakepager.Resolved {
		t.Errorf("incidents in PagerDuty at the end: %+v", incidents)
	}
}
