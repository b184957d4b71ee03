package alerts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakepager"
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

// Slack is away while keys come and go: their jobs wait, and when they get through they
// report it once.
func TestDelayedJobsOfKeysNotifyOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fakehttp.Fault{
		"503": fakehttp.WithStatus(http.StatusServiceUnavailable), "503 after acting": fakehttp.WithStatus(503).AfterActing(),
		"429": fakehttp.RateLimited(3 * time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 2, withoutPager)
			b.slack.SetFault(fault.On("chat.postMessage", "chat.update").During(5 * time.Minute))
			for i := range 5 {
				b.play(time.Duration(i) * 10 * time.Second)
				b.trip("shop/alice")
				b.play(time.Duration(i)*10*time.Second + 6*time.Second)
				b.reset("shop/alice")
			}
			b.play(time.Hour)
			got := b.channel()
			if len(got) != 2 || got[1].Reply != got[0].ID {
				t.Errorf("channel: %+v", got)
			}
			if left := b.waiting(); len(left) > 0 {
				t.Errorf("jobs are left: %v", left)
			}
		})
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

// Counts of incidents of keys do not depend on which worker reports them, and how often.
func TestCountsOfKeys(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	running := keyIncidents{"shop": {"a": {}, "b": {}}}
	ended := keyIncidents{"shop": {"a": {ended: true, counts: counts{Probes: 1, Wasted: 2, Rescheduled: 3}}, "c": {ended: true, counts: counts{Wasted: 5}}}}
	for _, k := range []keyIncidents{running, ended, running, ended} {
		if err := b.workers[0].store.addKeys(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.workers[1].store.seenKeys(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if want := (keysSeen{3, counts{1, 7, 3}}); got != want {
		t.Errorf("sum %+v, want %+v", got, want)
	}
}

// Credentials of one key that only a person can renew have a message of their own, and page.
func TestRefusedKeyPages(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 2)
	id := b.call("shop/alice", breaker.Unauthorized().WithReason("invalid_grant", true))
	b.play(10 * time.Second)
	got := b.channel()
	if !slices.ContainsFunc(got, func(m seen) bool { return strings.HasPrefix(m.ID, id+".") }) {
		t.Errorf("there is no message about incident %s: %+v", id, got)
	}
	if _, open := b.pager.Open()[id]; !open || len(b.pager.Open()) != 1 {
		t.Errorf("there is not 1 page about incident %s: %v", id, b.paged())
	}
}

// A key's page is resolved however its incident goes on and ends: credentials can be refused for
// good only at a probe, and a later probe can be refused for another reason.
func TestPageOfAKeyIsResolved(t *testing.T) {
	t.Parallel()
	const key = "shop/alice"
	forGood, refused := breaker.Unauthorized().WithReason("invalid_grant", true), breaker.Unauthorized().WithReason("answered 401", false)
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
				var id string
				for _, outcome := range outcomes {
					id = b.call(key, outcome)
					b.play(b.elapsed() + time.Minute)
				}
				if _, open := b.pager.Open()[id]; !open {
					t.Errorf("there is no page about incident %s: %v", id, b.paged())
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
