package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// serve says in Redis that a worker serves a destination now.
func (b *bench) serve(t *testing.T, name string) {
	t.Helper()
	rdb, now := b.server.Client(t), time.Now().UnixMilli()
	err := errors.Join(rdb.HSet(t.Context(), "tidegate:destinations", name, now).Err(),
		rdb.HSet(t.Context(), "tidegate:workers", "host:1", fmt.Sprintf(`{"seen_at":%d,"destinations":[%q]}`, now, name)).Err())
	if err != nil {
		t.Fatal(err)
	}
}

func TestGetExplainsWaiting(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "enqueue", "-d", "shop", "--id", "post-7", "--key", "alice", "--payload", `{"a":1}`, "--header", "X-A:b").ok(t)

	waits := func() string {
		t.Helper()
		for line := range strings.Lines(b.run(t, "get", "post-7").ok(t)) {
			if text, found := strings.CutPrefix(line, "waits"); found {
				return strings.TrimSpace(text)
			}
		}
		return ""
	}
	if got, want := waits(), "no worker has served shop yet; start one with: tidegate worker"; got != want {
		t.Errorf("waits %q, want %q", got, want)
	}
	b.serve(t, "shop")
	if got, want := waits(), "next in line; waiting for a free worker"; got != want {
		t.Errorf("waits %q, want %q", got, want)
	}
	b.run(t, "breaker", "trip", "shop", "--for", "252s").ok(t)
	if got, want := waits(), regexp.MustCompile(`^opened by hand by \S+@\S+; shop reopens in (4m|3m)[0-9]+s, at ([0-9-]+ )?[0-9:]{8}; next in line$`); !want.MatchString(got) {
		t.Errorf("waits %q, want %s", got, want)
	}
	doc := decode[document](t, b.run(t, "get", "post-7", "-o", "json").ok(t))
	if w := doc.Waiting; w == nil || w.Reason != explain.BreakerTripped || w.Breaker != "shop" || w.Until == nil {
		t.Errorf("waiting %+v", w)
	}
	if list := b.run(t, "list").ok(t); !strings.Contains(list, "shop reopens in 4m") && !strings.Contains(list, "shop reopens in 3m") {
		t.Errorf("list does not say why it waits:\n%s", list)
	}
}

// A finished job names the rule that decided, and no reason of an earlier wait.
func TestGetDecidedBy(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "enqueue", "-d", "shop", "--id", "post-7", "--payload", "{}").ok(t)
	for reason, want := range map[string]string{"decided rule 2: it is there already": "decided by rule 2: it is there already", "breaker_open shop": ""} {
		if err := b.server.Client(t).HSet(t.Context(), "asynq:{tidegate:shop}:t:post-7", "state", "completed", "reason", reason).Err(); err != nil {
			t.Fatal(err)
		}
		if doc := decode[document](t, b.run(t, "get", "post-7", "-o", "json").ok(t)); doc.Status != jobs.Completed || doc.Reason != want {
			t.Errorf("%s: %s, reason %q", reason, doc.Status, doc.Reason)
		}
		if out := b.run(t, "get", "post-7").ok(t); strings.Contains(out, "\nreason       "+want+"\n") != (want != "") {
			t.Errorf("%s: printed\n%s", reason, out)
		}
	}
}

func TestGetText(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "enqueue", "-d", "shop", "--id", "post-7", "--key", "alice", "--payload", `{"a":1}`, "--header", "X-A:b", "--path", "/p", "--query", "a=b",
		"--retry", "max=3", "--max-reschedules", "9", "--priority", "low").ok(t)
	// What an API answered must not reach the terminal as it is.
	hash := "asynq:{tidegate:shop:low}:t:post-7"
	err := b.server.Client(t).HSet(t.Context(), hash, "attempt", "1", "reschedules", "2", "crashes", "1", "last_error", "boom\x1b[31m\n!",
		"response_status", "503", "response_body", "<b>\u202e sorry\u0007", "output", `{"itemid":7}`).Err()
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^id           post-7
destination  shop
key          alice
status       pending
waits        no worker has served shop yet; start one with: tidegate worker
priority     low
created      ([0-9-]+ )?[0-9:]{8} \([0-9ms]+ ago\)
retries      1 of 3
reschedules  2 of 9
crashes      1
last error   boom\[31m !
response     503 <b> sorry
output       {"itemid":7}
path         /p
query        a=b
header       X-A: b
payload      {"a":1}
$`)
	if out := b.run(t, "get", "post-7").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	asJSON := b.run(t, "get", "post-7", "-o", "json").ok(t)
	if strings.ContainsAny(asJSON, "\x1b\x07\u202e") {
		t.Errorf("a control character in %q", asJSON)
	}
	if doc := decode[document](t, asJSON); doc.LastError != "boom\x1b[31m\n!" || doc.Response.Body != "<b>\u202e sorry\u0007" {
		t.Errorf("the JSON document changed what it holds: %+v", doc)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "list").want(t, 0, "no jobs\n", "")
	if out := b.run(t, "list", "-o", "json").ok(t); out != "{\"items\":[],\"next\":\"\"}\n" {
		t.Errorf("empty list %q", out)
	}
	for i := range 5 {
		b.run(t, "enqueue", "-d", "shop", "--id", fmt.Sprintf("job-%d", i), "--key", []string{"alice", "bob"}[i%2], "--payload", `"secret"`).ok(t)
	}
	b.run(t, "enqueue", "-d", "shop", "--id", "later", "--delay", "2h").ok(t)
	b.serve(t, "shop")

	var ids []string
	cursor, pages := "", 0
	for {
		pages++
		out := b.run(t, "list", "-o", "json", "--limit", "2", "--cursor", cursor).ok(t)
		if strings.Contains(out, `"payload"`) || strings.Contains(out, `"output"`) { // null would say that there is none
			t.Errorf("list: %s", out)
		}
		if strings.Contains(out, "payload") {
			t.Fatalf("a list shows payloads: %s", out)
		}
		doc := decode[ops.Page[document]](t, out)
		for _, j := range doc.Items {
			ids = append(ids, j.ID)
		}
		if cursor = doc.Next; cursor == "" {
			break
		}
	}
	if got, want := strings.Join(ids, " "), "later job-4 job-3 job-2 job-1 job-0"; got != want || pages < 3 {
		t.Errorf("%d pages with %s, want %s", pages, got, want)
	}

	out := b.run(t, "list", "--key", "bob", "--status", "pending,running", "--destination", "shop").ok(t)
	want := regexp.MustCompile(`^ID     DESTINATION  KEY  STATUS   AGE +CALL +DETAIL
job-3  shop         bob  pending  [0-9ms]+ +- +in line for a free worker
job-1  shop         bob  pending  [0-9ms]+ +- +in line for a free worker
$`)
	if !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if out := b.run(t, "list", "--limit", "1").ok(t); !regexp.MustCompile(`scheduled: starts in (2h|1h59m[0-9s]*), at `).MatchString(out) || !strings.Contains(out, "\nmore: --cursor ") {
		t.Errorf("first page:\n%s", out)
	}
	b.run(t, "list", "--status", "completed").want(t, 0, "no jobs\n", "")
}

// history reads a job's.
func (b *bench) history(t *testing.T, id string) []jobs.HistoryEntry {
	t.Helper()
	doc := decode[ops.Page[jobs.HistoryEntry]](t, b.run(t, "history", id, "-o", "json").ok(t))
	if doc.Next != "" {
		t.Errorf("next %q of a history, want none", doc.Next)
	}
	return doc.Items
}

func TestHistory(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a")
	b.run(t, "pause", "a", "--reason", "tea\x1b[2J time").ok(t)
	b.run(t, "resume", "a").ok(t)
	b.run(t, "cancel", "a").ok(t)
	by := regexp.QuoteMeta(operator())
	space := strings.Repeat(" ", len(operator())-1)
	want := regexp.MustCompile(`^VERSION  AT +STATUS     EVENT      CALL  BY` + space[1:] + `  DETAIL
1        ([0-9-]+ )?[0-9:]{8}  pending    created    -     -
2        ([0-9-]+ )?[0-9:]{8}  paused     paused     -     ` + by + `  tea\[2J time
3        ([0-9-]+ )?[0-9:]{8}  pending    resumed    -     ` + by + `
4        ([0-9-]+ )?[0-9:]{8}  cancelled  cancelled  -     ` + by + `
$`)
	if out := b.run(t, "history", "a").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	var events []string
	for i, e := range b.history(t, "a") {
		events = append(events, e.Event)
		if e.Version != i+1 || e.At.IsZero() {
			t.Errorf("entry %d is %+v", i, e)
		}
	}
	if got, want := strings.Join(events, " "), "created paused resumed cancelled"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}
