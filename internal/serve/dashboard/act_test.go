package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// Acting on all jobs of a filter shows the count first, does it once confirmed, and says
// what came of it; histories and the log name who it was.
func TestBulk(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	s.fill("shop", "monday", 120)
	s.fill("shop", "tuesday", 5)
	form := url.Values{"scope": {"all"}, "batch": {"monday"}, "action": {"cancel"}, "back": {"/jobs?batch=monday"}, "id": {"tuesday-000001"}}
	p := s.post("/jobs", form)
	p.shows(t, http.StatusOK, "Cancel 120 jobs?", "All jobs in batch monday that can be cancelled: 120 now.", "Do nothing")
	if got := s.status("monday-000000"); got != jobs.Pending {
		t.Fatalf("it is %s before it was confirmed", got)
	}
	form.Set("confirm", "1")
	form.Set("reason", "wrong file")
	p = s.post("/jobs", form)
	p.shows(t, http.StatusOK, "Cancelled 120 jobs.", "Cancelled 120")
	if p.path != "/jobs?batch=monday" {
		t.Errorf("back at %s", p.path)
	}
	s.get("/jobs").hides(t, "Cancelled 120 jobs.") // said once
	for id, want := range map[string]jobs.Status{"monday-000000": jobs.Cancelled, "monday-000119": jobs.Cancelled, "tuesday-000001": jobs.Pending} {
		if got := s.status(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	history, err := s.client.History(t.Context(), "monday-000007")
	if err != nil {
		t.Fatal(err)
	}
	if last := history[len(history)-1]; last.Event != "cancelled" || last.By != "token:ops" || last.Detail != "wrong file" {
		t.Errorf("history: %+v", last)
	}
	if line := `msg=audit action="cancel jobs" name=ops target="jobs in batch monday" count=120 refused=0 result=ok reason="wrong file"`; !strings.Contains(s.log.String(), line) {
		t.Errorf("the log has no line %s:\n%s", line, s.log)
	}
	form.Del("confirm")
	s.post("/jobs", form).shows(t, http.StatusOK, "Nothing to cancel", "None of the jobs in batch monday can be cancelled now.")
}

// A filter by time, error and cause stays through the list, the question and the act.
func TestBulkByTimeAndError(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	s.fill("shop", "monday", 3)
	const filter = "batch=monday&error=boom&since=2026-01-31T14%3A30%3A00Z"
	p := s.get("/jobs?" + filter)
	for _, hidden := range []string{`name="since" value="2026-01-31T14:30:00Z"`, `name="error" value="boom"`} {
		if !strings.Contains(p.body, hidden) {
			t.Errorf("the list has no field %s", hidden)
		}
	}
	form := url.Values{"scope": {"all"}, "batch": {"monday"}, "error": {"boom"}, "action": {"cancel"}, "confirm": {"1"}}
	s.post("/jobs", form)
	if got := s.status("monday-000000"); got != jobs.Pending {
		t.Errorf("a job without the error is %s", got)
	}
	form.Set("error", "")
	form.Set("since", "2026-01-31T14:30:00Z")
	form.Del("confirm")
	s.post("/jobs", form).shows(t, http.StatusOK, "Cancel 3 jobs?", "jobs in batch monday since 2026-01-31T14:30:00Z")
	for _, wrong := range []string{"since=x", "cause=Rate", "label=team", "error=" + strings.Repeat("x", 501)} {
		if p := s.get("/jobs?" + wrong); p.status != http.StatusBadRequest {
			t.Errorf("%.20s: %d", wrong, p.status)
		}
	}
}

// Jobs that were ticked are acted on after a question, one job at once unless that
// destroys something.
func TestSelected(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.fill("shop", "a", 8)
	ids := []string{"a-000001", "a-000002", "a-000002", "a-000004"}
	s.post("/jobs", url.Values{"action": {"pause"}, "id": ids}).shows(t, http.StatusOK, "Pause 3 selected jobs?", "a-000001, a-000002, a-000004.")
	s.post("/jobs", url.Values{"action": {"pause"}, "id": ids, "confirm": {"1"}}).shows(t, http.StatusOK, "Paused 3 jobs.")
	s.post("/jobs", url.Values{"action": {"resume"}, "id": {"a-000001", "a-000005"}, "confirm": {"1"}}).shows(t, http.StatusOK,
		"Resumed 1 job; 1 was refused (it is pending).")
	p := s.post("/jobs", url.Values{"action": {"resume"}, "id": {"a-000002"}, "back": {"/jobs/a-000002"}})
	if p.shows(t, http.StatusOK, "Resumed 1 job."); p.path != "/jobs/a-000002" {
		t.Errorf("back at %s", p.path)
	}
	s.post("/jobs", url.Values{"action": {"cancel"}, "id": {"a-000002"}}).shows(t, http.StatusOK, "Cancel 1 selected job?")
	s.post("/jobs", url.Values{"action": {"cancel"}, "id": {"gone"}, "confirm": {"1"}}).shows(t, http.StatusOK,
		"Cancelled 0 jobs; 1 was refused (it no longer exists).")
	s.post("/jobs", url.Values{"action": {"cancel"}, "id": {"a-000002"}, "confirm": {"1"}, "back": {"//evil.example"}}).shows(t, http.StatusOK, "Cancelled 1 job.")
	if got := s.status("a-000002"); got != jobs.Cancelled {
		t.Errorf("it is %s", got)
	}
	s.post("/jobs", url.Values{"action": {"retry"}, "id": {"a-000002"}}).shows(t, http.StatusOK, "Retried 1 job.")
}

// A retry can change jobs: one by its page, and the jobs of a filter.
func TestRetryWithChanges(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.fill("shop", "a", 3)
	ids := []string{"a-000001", "a-000002"}
	s.post("/jobs", url.Values{"action": {"cancel"}, "id": ids, "confirm": {"1"}}).shows(t, http.StatusOK, "Cancelled 2 jobs.")
	s.get("/jobs/a-000001").shows(t, http.StatusOK, "Change and retry")
	one := url.Values{"action": {"retry"}, "id": ids[:1], "edit": {"1"}}
	s.post("/jobs", one).shows(t, http.StatusOK, "Retry 1 selected job?", "Changes")
	one.Set("confirm", "1")
	one.Set("set", "key=bob")
	s.post("/jobs", one).shows(t, http.StatusBadRequest, "cannot be changed")
	one.Set("set", "payload.title=Sunset\r\n\r\npayload.n = 7")
	s.post("/jobs", one).shows(t, http.StatusOK, "Retried 0 jobs; 1 was refused (", "that is no object")
	one.Set("set", "payload={}\r\npayload.title=Sunset")
	s.post("/jobs", one).shows(t, http.StatusOK, "Retried 1 job.")
	s.get("/jobs/a-000001").shows(t, http.StatusOK, `"title": "Sunset"`, "set payload, payload.title")
	s.post("/jobs", url.Values{"action": {"retry"}, "scope": {"all"}, "status": {"cancelled"}, "confirm": {"1"}, "set": {"payload=8"}}).shows(t, http.StatusOK, "Retried 1 job.")
}

// What cannot be meant does nothing and says why.
func TestWrongForms(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.fill("shop", "a", 2)
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprintf("a-%06d", i))
	}
	for name, c := range map[string]struct {
		path string
		form url.Values
		text string
	}{
		"no action":        {"/jobs", url.Values{"id": {"a-000001"}}, "There is no such action"},
		"nothing selected": {"/jobs", url.Values{"action": {"cancel"}, "confirm": {"1"}}, "No job is selected"},
		"all there are":    {"/jobs", url.Values{"action": {"cancel"}, "scope": {"all"}, "confirm": {"1"}}, "No action applies to all jobs"},
		"wrong status":     {"/jobs", url.Values{"action": {"retry"}, "scope": {"all"}, "status": {"pending"}, "confirm": {"1"}}, "Pending jobs cannot be retried"},
		"bad id":           {"/jobs", url.Values{"action": {"cancel"}, "id": {"../x"}}, "is not a valid job id"},
		"too many":         {"/jobs", url.Values{"action": {"cancel"}, "id": many}, "1001 jobs are selected; the limit is 1000"},
		"too long":         {"/jobs", url.Values{"action": {"cancel"}, "id": {"a-000001"}, "x": {strings.Repeat("x", 300<<10)}}, "or is too long"},
		"long reason":      {"/jobs", url.Values{"action": {"cancel"}, "id": {"a-000001"}, "reason": {strings.Repeat("ü", 501)}}, "The reason has 501 characters; the limit is 500"},
		"odd time":         {"/breakers/shop", url.Values{"action": {"trip"}, "for": {"9000h"}, "confirm": {"1"}}, "not one of the times"},
		"odd order":        {"/breakers/shop", url.Values{"action": {"melt"}, "confirm": {"1"}}, "There is no such action"},
		"odd pause":        {"/destinations/shop", url.Values{"action": {"melt"}, "confirm": {"1"}}, "There is no such action"},
	} {
		p := s.post(c.path, c.form)
		if p.status != http.StatusBadRequest || !strings.Contains(p.text, c.text) {
			t.Errorf("%s: %d, want 400 with %q:\n%s", name, p.status, c.text, p.text)
		}
	}
	if got := s.status("a-000001"); got != jobs.Pending {
		t.Errorf("the job is %s", got)
	}
}

// A breaker is opened, kept closed and reset by hand, after a question each.
func TestBreakerByHand(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	s.fill("shop", "a", 3)
	state := func() breaker.Status {
		t.Helper()
		b, err := breaker.DefaultNamespace.Get(t.Context(), s.rdb, "shop")
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	trip := url.Values{"action": {"trip"}, "for": {"1h"}, "reason": {"their maintenance"}}
	s.post("/breakers/shop", trip).shows(t, http.StatusOK, "Open shop for 1 hour?", "shop is closed now; 3 jobs wait.", "All keys of shop are held, too.")
	if state().State != breaker.Closed {
		t.Fatal("it is open before it was confirmed")
	}
	trip.Set("confirm", "1")
	s.post("/breakers/shop", trip).shows(t, http.StatusOK, "Opened shop for 1 hour.", "Opened by hand by token:ops: their maintenance. Tested again in")
	if b := state(); b.State != breaker.Open || b.TrippedBy != "token:ops" || b.Remaining > time.Hour || b.Remaining < 59*time.Minute {
		t.Errorf("breaker: %+v", b)
	}
	reset := url.Values{"action": {"reset"}}
	s.post("/breakers/shop", reset).shows(t, http.StatusOK, "Reset shop?", "shop is open now")
	reset.Set("confirm", "1")
	s.post("/breakers/shop", reset).shows(t, http.StatusOK, "Reset shop: it is closed.")
	if b := state(); b.State != breaker.Closed {
		t.Errorf("breaker: %+v", b)
	}
	force := url.Values{"action": {"force"}, "for": {""}, "reason": {"their limiter is broken"}, "confirm": {"1"}}
	s.post("/breakers/shop", force).shows(t, http.StatusOK, "Keeping shop closed until it is reset.", "Closed by hand", "Kept closed by hand by token:ops: their limiter is broken. Until it is reset")
	s.post("/breakers/none", trip).shows(t, http.StatusNotFound, "There is no such destination")
	for _, line := range []string{
		`action="trip breaker" name=ops target=shop for="for 1h" result=ok reason="their maintenance"`,
		`action="reset breaker" name=ops target=shop`, `action="force breaker" name=ops target=shop state=closed for="until it is reset" result=ok`,
	} {
		if !strings.Contains(s.log.String(), line) {
			t.Errorf("the log has no line %s:\n%s", line, s.log)
		}
	}
}

// The page of a breaker shows limits; what was announced is forgotten after a question.
func TestLimitsByHand(t *testing.T) {
	t.Parallel()
	s := open(t, access.ScopeOperate, "shop")
	s.get("/breakers/shop/bob").shows(t, http.StatusOK, "No known limits.")
	b, err := breaker.New(t.Context(), s.rdb, breaker.Options{Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	permit, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.get("/breakers/stock").shows(t, http.StatusNotFound)
	if _, err := permit.Report(t.Context(), breaker.Success().WithBudget(breaker.Budget{Remaining: 1, Limit: 100, Reset: time.Hour})); err != nil {
		t.Fatal(err)
	}
	forget := url.Values{"action": {"forget"}}
	s.post("/breakers/shop", forget).shows(t, http.StatusOK, "Forget the limits of shop?", "Declared limits stay")
	s.get("/breakers/shop").shows(t, http.StatusOK, "5 at once", "1 of 5", "100 per window", "99 of 100", "Forget")
	forget.Set("confirm", "1")
	s.post("/breakers/shop", forget).shows(t, http.StatusOK, "shop: forgot the announced limit of 100 per window (99 of 100).", "1 of 5", "Limits forgotten by hand")
	s.get("/breakers/shop").hides(t, `value="forget"`)
	if line := `action="forget limits" name=ops target=shop result=ok`; !strings.Contains(s.log.String(), line) {
		t.Errorf("the log has no line %s:\n%s", line, s.log)
	}
}

// A destination is paused after a question, and resumed.
func TestPause(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.fill("shop", "a", 3)
	s.post("/destinations/shop", url.Values{"action": {"pause"}}).shows(t, http.StatusOK, "Pause shop?", "3 unfinished jobs.")
	s.post("/destinations/shop", url.Values{"action": {"pause"}, "confirm": {"1"}, "reason": {"maintenance"}}).shows(t, http.StatusOK, "Paused shop.", "It is paused by local (maintenance).")
	s.get("/").shows(t, http.StatusOK, "is paused by local (maintenance)")
	s.post("/destinations/shop", url.Values{"action": {"pause"}, "confirm": {"1"}}).shows(t, http.StatusOK, "shop was paused already.")
	s.post("/destinations/shop", url.Values{"action": {"resume"}}).shows(t, http.StatusOK, "Resumed shop.")
	s.get("/destinations/shop").hides(t, "It is paused")
}

// A destination that nothing uses any more is forgotten after a question.
func TestForget(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	if err := s.rdb.HSet(t.Context(), store.DefaultNamespace.DestinationsKey(), "old", 1).Err(); err != nil {
		t.Fatal(err)
	}
	s.fill("old", "a", 1)
	s.get("/destinations/old").hides(t, "Forget")
	s.post("/destinations/old", url.Values{"action": {"forget"}, "confirm": {"1"}}).shows(t, http.StatusBadRequest, "old is in use: 1 job waits for it")
	if err := s.client.Cancel(t.Context(), "a-000000"); err != nil {
		t.Fatal(err)
	}
	s.post("/destinations/old", url.Values{"action": {"forget"}}).shows(t, http.StatusOK, "Forget old?")
	s.post("/destinations/old", url.Values{"action": {"forget"}, "confirm": {"1"}}).shows(t, http.StatusOK, "old is forgotten, with 1 finished job.")
	s.get("/destinations/old").shows(t, http.StatusNotFound, "There is no such destination")
}
