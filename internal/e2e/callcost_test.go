package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Two processes, two windows, and an API that counts points: no call is refused, and the points
// are used up as fast as the windows let them.
func TestCostsInSeveralWindows(t *testing.T) {
	const burst, longer, perSecond, cost, n = 60, 200, 20.0, 15, 20
	left, at, refused := 0.0, time.Time{}, 0
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Script: func(_ int, r *http.Request) *fakeapi.Answer {
		points, _ := strconv.ParseFloat(r.Header.Get("X-Points"), 64)
		now := time.Now()
		// A bucket with room for calls that arrive later than they were granted.
		if left += perSecond * now.Sub(at).Seconds(); at.IsZero() || left > 1.2*longer {
			left = 1.2 * longer
		}
		at = now
		if points == 0 || points > left {
			refused++
			return &fakeapi.Answer{Status: http.StatusTooManyRequests}
		}
		left -= points
		return nil
	}})
	f.env["DESTINATION_0_RATE"] = "60/1s:60,200/10s:200"
	ids := f.enqueue(n, jobs.Cost(cost), jobs.Header("X-Points", strconv.Itoa(cost)))
	started := time.Now()
	for range 2 {
		f.start()
	}
	f.waitCompleted(ids, 60*time.Second)
	took := time.Since(started).Seconds()
	ideal := (n*cost - longer) / perSecond
	t.Logf("%d points took %.2f s with the start of the processes, ideal %.2f s", n*cost, took, ideal)
	if refused > 0 {
		t.Errorf("%d calls were refused", refused)
	}
	if took < ideal {
		t.Errorf("%d points took %.2f s, want at least %.2f", n*cost, took, ideal)
	}
	f.exactlyOnce(ids)
}

// What an answer says of its cost corrects what the job took, and a cost that can never run is
// refused by the command and by the HTTP API.
func TestTheCostOfAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Shared(t), fakeapi.Options{Script: func(int, *http.Request) *fakeapi.Answer {
		return &fakeapi.Answer{Status: http.StatusOK, Body: `{"cost":{"actual":7}}`}
	}})
	rules := filepath.Join(t.TempDir(), "answers.yaml")
	if err := os.WriteFile(rules, []byte("- when: status == 200\n  then: ok\n  cost: body.cost.actual\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.env["DESTINATION_0_ANSWERS_FILE"], f.env["DESTINATION_0_RATE"] = rules, "1000/30d:1000"
	f.env["LISTEN_ADDR"] = "127.0.0.1:0"
	ids := f.enqueue(3, jobs.Cost(40))
	f.start()
	f.waitCompleted(ids, 30*time.Second)
	out, stderr, code := f.tidegate("limits", f.dest, "-o", "json")
	var limits struct{ Declared []struct{ Limit, Used int } }
	if err := json.Unmarshal([]byte(out), &limits); err != nil || code != 0 || len(limits.Declared) != 1 || limits.Declared[0].Used != 21 {
		t.Errorf("limits: %d, %v, %s%s; want 21 used", code, err, out, stderr)
	}
	const never = "1001 is above the window 1000/720h:1000 of RATE of destination "
	if _, stderr, code := f.tidegate("enqueue", "--destination", f.dest, "--cost", "1001"); code != 2 || !strings.Contains(stderr, "cost: "+never) {
		t.Errorf("enqueue: exit status %d, %s", code, stderr)
	}
	if out, stderr, code := f.tidegate("enqueue", "--destination", f.dest, "--cost", "1000", "--delay", "1h", "-o", "json"); code != 0 || !strings.Contains(out, `"cost":1000`) && !strings.Contains(out, `"cost": 1000`) {
		t.Errorf("enqueue: exit status %d, %s%s", code, out, stderr)
	}
	api := f.apiInstance()
	for body, want := range map[string]string{
		`{"destination":"` + f.dest + `","payload":{},"cost":1001}`:    never,
		`{"destination":"` + f.dest + `","payload":{},"cost":0}`:       "must be from 1 to 1000000, is 0",
		`{"destination":"` + f.dest + `","payload":{},"cost":1000001}`: "must be from 1 to 1000000, is 1000001",
	} {
		if status, _, answer := api.ask("", http.MethodPost, "/v1/jobs", body); status != http.StatusUnprocessableEntity || !strings.Contains(answer, want) || !strings.Contains(answer, `"location":"body.cost"`) {
			t.Errorf("%s: %d, %s", body, status, answer)
		}
	}
}
