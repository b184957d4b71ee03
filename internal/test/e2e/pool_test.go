package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Two workers share the limits of three tokens. One token is revoked in the middle: the jobs go on with the others. Once
// the API refuses all of them, the commands say why the jobs wait.
func TestPoolOfTokens(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 30, Window: time.Second}, PerToken: true, Latency: 10 * time.Millisecond,
	})
	names := []string{"app-1", "app-2", "app-3"}
	f.withTokens(names...)
	f.env["DESTINATION_0_AUTH_POOL_FILE"] = f.env["DESTINATION_0_AUTH_TOKENS_FILE"]
	delete(f.env, "DESTINATION_0_AUTH_TOKENS_FILE")
	delete(f.env, "DESTINATION_0_AUTH_TOKEN")
	f.env["DESTINATION_0_KEY_BY"], f.env["DESTINATION_0_KEY_RATE"] = "pool", "20/1s:10"
	f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = "3600000"
	ids := slices.Concat(f.enqueue(100), f.enqueue(50, jobs.Key("alice")))
	f.start()
	f.start()
	f.waitAccepted(50, time.Minute)
	refuse := func(tokens ...string) {
		f.api.SetScript(func(_ int, r *http.Request) *fakeapi.Answer {
			if slices.Contains(tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
				return &fakeapi.Answer{Status: http.StatusUnauthorized}
			}
			return nil
		})
	}
	refuse(token("app-2"))
	f.waitCompleted(ids, time.Minute)
	f.exactlyOnce(ids)
	if limited := f.api.Stats().Limited; limited != 0 {
		t.Errorf("%d calls were refused because of a limit", limited)
	}
	refused := slices.DeleteFunc(f.callsOf("app-2"), func(r fakeapi.Receipt) bool { return r.Status != http.StatusUnauthorized })
	if n := len(refused); n == 0 || n > 20 {
		t.Errorf("%d calls with the revoked token, want those that were in flight", n)
	}
	for _, name := range names {
		if n := len(f.callsOf(name)); n < 10 {
			t.Errorf("%d calls with token %s", n, name)
		}
	}
	for _, id := range ids {
		if j := f.job(id); j.Attempt != 0 || j.RescheduleCount > 1 {
			t.Errorf("job %s: %d attempts, %d reschedules", id, j.Attempt, j.RescheduleCount)
		}
	}
	if out, _, code := f.tidegate("breaker", "list"); code != 0 || !strings.Contains(out, f.dest+"/app-2") {
		t.Errorf("breaker list: exit %d\n%s", code, out)
	}
	if out, _, code := f.tidegate("limits", f.dest+"/app-1"); code != 0 || !strings.Contains(out, "declared") {
		t.Errorf("limits: exit %d\n%s", code, out)
	}

	refuse(token("app-1"), token("app-2"), token("app-3"))
	late := f.enqueue(3)
	const why = "no token of the pool of "
	redistest.Await(t, 2*time.Minute, "the jobs wait for a token", func() bool {
		out, _, _ := f.tidegate("get", late[2])
		return strings.Contains(out, why+f.dest) && strings.Contains(out, "3 refused by the API (app-1, app-2, app-3)")
	})
	for _, name := range names {
		if events := f.historyOf(name); len(events) == 0 || events[len(events)-1].To != breaker.Open || events[len(events)-1].Cause != breaker.CauseCredentials {
			t.Errorf("the breaker of %s: %v", name, events)
		}
	}
	if _, stderr, code := f.tidegate("doctor"); code > 1 {
		t.Errorf("doctor: exit %d: %s", code, stderr)
	}
	refuse()
	for _, name := range names {
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), f.rdb, f.dest+"/"+name, "test"); err != nil {
			t.Fatal(err)
		}
	}
	f.waitCompleted(late, time.Minute)
}
