package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/jobs"
)

// A given id is the token name's that took it: another learns that it is taken, and no
// more.
func TestGivenIDsAreOwned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const order = `{"id":"order-1001","destination":"shop","payload":{"secret":1}}`
	b.post(t, "/v1/jobs", order, "As", "enqueue", "Name", "shop").ok(t, http.StatusCreated)
	made := decode[jobs.Job](t, b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "As", "enqueue", "Name", "shop").ok(t, http.StatusCreated))
	if _, err := b.client.Enqueue(t.Context(), jobs.New("shop", 1, jobs.ID("by-go"))); err != nil {
		t.Fatal(err)
	}
	b.post(t, "/v1/jobs", `{"id":"local-1","destination":"shop","payload":1}`, "Name", "local").ok(t, http.StatusCreated)

	refusal := func(answer got) string {
		t.Helper()
		p := answer.problem(t, http.StatusConflict)
		if len(p.Errors) != 1 || p.Errors[0].Location != "body.id" || answer.header.Get("Location") != "" {
			t.Errorf("%s, %v", answer.body, answer.header)
		}
		return answer.body
	}
	bodies := map[string]bool{}
	for _, row := range []struct{ id, name, scopes string }{
		{"order-1001", "eve", "enqueue"},
		{"order-1001", "eve", "enqueue,read"},
		{"order-1001", "ann", "enqueue,operate"},
		{made.ID, "eve", "enqueue"},
		{"by-go", "eve", "enqueue"},
		{"local-1", "eve", "enqueue"},
	} {
		for _, destination := range []string{"shop", "stock"} {
			body := refusal(b.post(t, "/v1/jobs", `{"id":"`+row.id+`","destination":"`+destination+`","payload":2}`, "As", row.scopes, "Name", row.name))
			bodies[strings.ReplaceAll(body, row.id, "ID")] = true
		}
	}
	if len(bodies) != 1 {
		t.Errorf("refusals tell jobs apart: %v", bodies)
	}

	// Its owner, those without tokens and, of an id without an owner, those who may read,
	// are answered as before.
	known := b.post(t, "/v1/jobs", order, "As", "enqueue", "Name", "shop").ok(t, http.StatusOK)
	if want := `{"id":"order-1001","destination":"shop","status":"pending","duplicate":true,"redacted":true}` + "\n"; known.body != want {
		t.Errorf("its owner is answered %s, want %s", known.body, want)
	}
	for id, name := range map[string]string{"order-1001": "local", "by-go": "ann", "local-1": "local"} {
		if again := decode[jobAnswer](t, b.post(t, "/v1/jobs", `{"id":"`+id+`","destination":"shop","payload":2}`, "Name", name).ok(t, http.StatusOK)); !again.Duplicate || again.ID != id {
			t.Errorf("%s for %s: %+v", id, name, again)
		}
	}
	if again, err := b.client.Enqueue(t.Context(), jobs.New("shop", 1, jobs.ID("order-1001"))); err != nil || !again.Duplicate {
		t.Errorf("%+v, %v", again, err)
	}

	// Of many each is judged by itself.
	two := order + "\n" + `{"id":"new-1","destination":"shop","payload":1}` + "\n" + `{"id":"new-1","destination":"shop","payload":1}`
	taken := []ProblemField{{"body[0].id", "is taken"}}
	for kind, body := range map[string]string{jsonType: "[" + strings.ReplaceAll(two, "\n", ",") + "]", ndjsonType: strings.ReplaceAll(two, "new-1", "new-2")} {
		got := decode[Enqueued](t, b.post(t, "/v1/jobs", body, "Content-Type", kind, "As", "enqueue", "Name", "eve").ok(t, http.StatusCreated))
		if got.Accepted != 1 || got.Duplicates != 1 || got.Rejected != 1 {
			t.Errorf("%s: %+v", kind, got)
		}
		item := got.Items[0]
		item.Line = 0
		if diff := cmp.Diff(EnqueuedItem{Errors: taken}, item); diff != "" {
			t.Errorf("%s (-want +got)\n%s", kind, diff)
		}
	}
	// No answer names the owner.
	if answer := b.get(t, "/v1/jobs/order-1001").ok(t, http.StatusOK); strings.Contains(answer.body, "owner") {
		t.Errorf("the job is shown with its owner: %s", answer.body)
	}
}

// A replace-key belongs to the name of a token, so that no token cancels the jobs of another.
func TestReplaceKeysAreOwned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	enqueue := func(name string) jobs.Job {
		t.Helper()
		return decode[jobs.Job](t, b.post(t, "/v1/jobs", `{"destination":"shop","payload":1,"replace":"k","delay":"1h","replace_max":7200}`, "As", "enqueue", "Name", name).ok(t, http.StatusCreated))
	}
	mine := enqueue("shop")
	if theirs := enqueue("eve"); theirs.Replaced != "" {
		t.Errorf("a token replaced another one's job %s", theirs.Replaced)
	}
	if again := enqueue("shop"); again.Replaced != mine.ID || again.Replace != "k" || again.AvailableAt.Sub(again.CreatedAt) < 59*time.Minute {
		t.Errorf("the second job %+v replaced %q, want %s", again, again.Replaced, mine.ID)
	}
	many := decode[Enqueued](t, b.post(t, "/v1/jobs", `[{"destination":"shop","payload":1,"replace":"many"},{"destination":"shop","payload":2,"replace":"many"}]`).ok(t, http.StatusCreated))
	if many.Items[1].Replaced != many.Items[0].ID {
		t.Errorf("of an array %+v", many.Items)
	}
}
