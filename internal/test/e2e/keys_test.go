package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// token is that of a key in these tests.
func token(key string) string { return "canary-token-of-" + key }

// withTokens gives keys tokens that the workers read from a file.
func (f *fleet) withTokens(keys ...string) {
	f.t.Helper()
	tokens := map[string]string{}
	for _, key := range keys {
		tokens[key] = token(key)
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		f.t.Fatal(err)
	}
	path := filepath.Join(f.t.TempDir(), "tokens.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.env["DESTINATION_0_AUTH_TOKENS_FILE"] = path
}

// callsOf are the calls that were made with the token of a key.
func (f *fleet) callsOf(key string) []fakeapi.Receipt {
	auth := fakeapi.HashAuth("Bearer " + token(key))
	return slices.DeleteFunc(f.api.Receipts(), func(r fakeapi.Receipt) bool { return r.Auth != auth })
}

// historyOf returns the transitions of a key's breaker.
func (f *fleet) historyOf(key string) []breaker.Event {
	f.t.Helper()
	read, err := breaker.DefaultNamespace.ReadOne(f.t.Context(), f.rdb, breaker.Query{History: breaker.All}, f.dest+"/"+key)
	if err != nil {
		f.t.Fatal(err)
	}
	return read.History
}

// quiet checks that none of the calls arrived while a breaker was OPEN, and that in
// HALF_OPEN one did at most. It returns how often it opened.
func quiet(t *testing.T, events []breaker.Event, calls []fakeapi.Receipt) (openings int) {
	t.Helper()
	for i, e := range events {
		end := time.Now()
		if i+1 < len(events) {
			end = events[i+1].At
		}
		n := 0
		for _, r := range calls {
			if r.At.After(e.At.Add(propagation())) && r.At.Before(end) {
				n++
			}
		}
		switch {
		case e.To == breaker.Open && n > 0:
			t.Errorf("%d calls arrived while %s was OPEN (%s) from %s to %s", n, e.Name, e.Cause, e.At, end)
		case e.To == breaker.HalfOpen && n > 1:
			t.Errorf("%d calls arrived while %s was HALF_OPEN", n, e.Name)
		}
		if e.To == breaker.Open {
			openings++
		}
	}
	return openings
}

// A user who is limited waits alone: the others are published meanwhile with their
// own tokens, and what none has a token for fails without a call.
func TestLimitedUserStopsNobodyElse(t *testing.T) {
	t.Parallel()
	const workers, perUser = 3, 15
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 20, Window: 2 * time.Second}, PerToken: true,
		Hints: fakeapi.RetryAfter, Latency: 40 * time.Millisecond,
	})
	f.withTokens("alice", "bob", "carol")
	owner := map[string]string{}
	byKey := map[string][]string{}
	add := func(key string, n int) {
		for _, id := range f.enqueue(n, jobs.Key(key)) {
			owner[id] = key
			byKey[key] = append(byKey[key], id)
		}
	}
	add("alice", 80)
	add("bob", perUser)
	add("carol", perUser)
	add("mallory", 1)
	byKey[""] = f.enqueue(perUser)
	for range workers {
		f.start()
	}
	for _, key := range []string{"bob", "carol", ""} {
		f.waitCompleted(byKey[key], 10*time.Second)
	}
	if got := f.api.Stats().Accepted; got > 3*perUser+40 {
		t.Errorf("%d calls were accepted before the users with few jobs were done: they waited for alice", got)
	}
	f.waitCompleted(byKey["alice"], 30*time.Second)
	f.exactlyOnce(slices.Concat(byKey["alice"], byKey["bob"], byKey["carol"], byKey[""]))
	redistest.Await(t, 2*time.Minute, "mallory's job has failed", func() bool { return f.job(byKey["mallory"][0]).Status == jobs.Failed })
	if j := f.job(byKey["mallory"][0]); !strings.Contains(j.LastError, "mallory") || j.Attempt != 0 {
		t.Errorf("mallory's job: %q after %d retries", j.LastError, j.Attempt)
	}

	for _, r := range f.api.Receipts() {
		bearer := "canary-token"
		if key := owner[r.Key]; key != "" {
			bearer = token(key)
		}
		if r.Auth != fakeapi.HashAuth("Bearer "+bearer) {
			t.Errorf("a job of %q was sent with somebody else's token", owner[r.Key])
		}
		if r.Status == 429 && owner[r.Key] != "alice" {
			t.Errorf("a job of %q was refused", owner[r.Key])
		}
	}
	if openings := quiet(t, f.historyOf("alice"), f.callsOf("alice")); openings < 3 {
		t.Errorf("alice's breaker opened %d times with 80 jobs and 20 calls in a window", openings)
	}
	if events := f.history(); len(events) != 0 {
		t.Errorf("the destination's own breaker moved: %v", events)
	}
	if limited, most := f.api.Stats().Limited, 4*workers*10; limited > most {
		t.Errorf("%d calls were refused, want at most %d", limited, most)
	}
	t.Logf("%d calls, %d refused", f.api.Stats().Calls, f.api.Stats().Limited)
}
