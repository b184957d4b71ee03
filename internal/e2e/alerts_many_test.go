package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakepager"
	"github.com/tidegate/tidegate/internal/fakeslack"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// What happens again and again, and what happens to many keys at once, is told in one
// message: of a destination that flaps and of another one with thirty limited keys.
func alertsOfManyAreOne(t *testing.T) {
	const openings, keys = 20, 30
	a := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a.set(map[string]string{"ALERT_OPEN_TOO_LONG": "off"})
	flapping := a.dest + "-flaps"
	a.serveToo(flapping)
	a.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
		if a.limited.Load() && strings.HasPrefix(r.URL.Path, "/limited") {
			return &fakeapi.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"6"}}}
		}
		return nil
	})
	a.startWorkers(2)

	// What comes within five seconds is one message: not at the end of them.
	if part := time.Duration(time.Now().UnixNano()) % (5 * time.Second); part > 3*time.Second {
		<-time.After(5*time.Second - part)
	}
	a.limited.Store(true)
	var specs []*jobs.Spec
	for i := range 2 * keys {
		specs = append(specs, jobs.New(a.dest, i, jobs.Key(fmt.Sprintf("user%d", i%keys)), jobs.Path("/limited")))
	}
	ids := a.enqueueSpecs(specs)
	if err := a.api.Wait(within(t, 20*time.Second), func(s fakeapi.Stats) bool { return s.Limited >= keys }); err != nil {
		t.Fatal(err)
	}
	a.heal()

	for range openings {
		s, err := breaker.Trip(t.Context(), a.rdb, flapping, breaker.TripOptions{Reason: "it flaps"})
		if err != nil {
			t.Fatal(err)
		}
		redistest.Await(t, 2*time.Minute, "a worker has noticed", func() bool {
			_, err := a.client.Get(t.Context(), s.Incident+".opened.slack")
			return err == nil
		})
		if _, err := breaker.Reset(t.Context(), a.rdb, flapping, "test"); err != nil {
			t.Fatal(err)
		}
	}
	a.waitCompleted(ids, 30*time.Second)

	of := func(s story, name string) story {
		var out story
		roots := map[string]bool{}
		for _, m := range s.messages {
			if strings.HasPrefix(m.Versions[0].Text, name+" ") || strings.HasPrefix(m.Versions[0].Text, name+":") {
				roots[m.TS] = true
				out.messages = append(out.messages, m)
			}
		}
		for _, m := range append(s.pages, s.replies...) {
			if roots[m.ThreadTS] {
				out.replies = append(out.replies, m)
			}
		}
		return out
	}
	a.awaitSlack(2*time.Minute, "both are over", func(s story) bool {
		k, f := of(s, a.dest), of(s, flapping)
		if len(k.replies) == 0 || len(f.messages) == 0 {
			return false
		}
		return isOver(f.messages[len(f.messages)-1])
	})
	a.settle(90 * time.Second)
	s := storyOf(a.slack.Messages())
	k, f := of(s, a.dest), of(s, flapping)

	if len(k.messages) != 1 || len(k.replies) != 1 {
		t.Fatalf("%d messages and %d replies about the keys, want one of each", len(k.messages), len(k.replies))
	}
	texts := strings.Join(k.messages[0].Texts(), "\n")
	if want := fmt.Sprintf("%d keys are rate limited", keys); !strings.Contains(texts, want) {
		t.Errorf("the message never says %q:\n%s", want, texts)
	}
	if last := k.messages[0]; !strings.Contains(spoken(last.Text, last.Blocks), fmt.Sprintf("*Incidents of keys*\n%d", keys)) {
		t.Errorf("at the end the message does not tell of %d incidents: %s", keys, spoken(last.Text, last.Blocks))
	}

	if len(f.messages) == 0 || len(f.messages) > 2 {
		t.Fatalf("%d messages about %d openings, want at most 2", len(f.messages), openings)
	}
	last := f.messages[len(f.messages)-1]
	want := fmt.Sprintf("*Opened*\n%d times", openings+1-len(f.messages)) // a first one stands for itself
	if text := spoken(last.Text, last.Blocks); !strings.Contains(text, want) {
		t.Errorf("the last message does not say %q:\n%s", want, text)
	}
	if n := len(f.replies); n < len(f.messages) || n > len(f.messages)+1 {
		t.Errorf("%d recoveries for %d messages", n, len(f.messages))
	}
	if len(s.messages) != len(f.messages)+len(k.messages) {
		t.Errorf("%d messages in all", len(s.messages))
	}
	t.Logf("keys: %q, %q", k.messages[0].Texts(), k.replies[0].Text)
	for _, m := range f.messages {
		t.Logf("flapping: %d edits, %q", m.Edits, m.Text)
	}
	for _, m := range f.replies {
		t.Logf("flapping, reply: %q", m.Text)
	}
}

// isOver says that a message tells of something that has ended.
func isOver(m fakeslack.Message) bool {
	return strings.Contains(m.Text, " has recovered after ") || strings.Contains(m.Text, " was closed by hand after ")
}
