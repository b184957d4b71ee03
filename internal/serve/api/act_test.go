package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// audited compares the lines of the audit so far.
func (b *bench) audited(t testing.TB, want []string) {
	t.Helper()
	var got []string
	for _, line := range b.log.lines("msg=audit") {
		_, line, _ = strings.Cut(line, "msg=audit ")
		line, _, _ = strings.Cut(line, " address=")
		got = append(got, strings.TrimSpace(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit lines (-want +got)\n%s", diff)
	}
}

func TestActOnOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a")
	for _, step := range []struct {
		verb, body string
		before     jobs.Status
		after      jobs.Status
	}{
		{"pause", `{"reason":"tea"}`, jobs.Pending, jobs.Paused},
		{"resume", ``, jobs.Paused, jobs.Pending},
		{"cancel", `{}`, jobs.Pending, jobs.Cancelled},
		{"retry", ` `, jobs.Cancelled, jobs.Pending},
	} {
		got := decode[ActedOne](t, b.post(t, "/v1/jobs/a/"+step.verb, step.body).ok(t, http.StatusOK))
		if diff := cmp.Diff(ActedOne{ID: "a", Done: true, Status: string(step.before)}, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", step.verb, diff)
		}
		if job, err := b.client.Get(t.Context(), "a"); err != nil || job.Status != step.after {
			t.Errorf("after %s: %s, %v, want %s", step.verb, job.Status, err, step.after)
		}
	}
	if p := b.post(t, "/v1/jobs/a/resume", ``).problem(t, http.StatusConflict); !strings.Contains(p.Detail, "pending") {
		t.Errorf("detail %q", p.Detail)
	}
	b.post(t, "/v1/jobs/nope/cancel", ``).problem(t, http.StatusNotFound)
	b.post(t, "/v1/jobs/a/cancel", `{"reason":"x"}`, "Content-Type", "text/plain").problem(t, http.StatusUnsupportedMediaType)
	b.post(t, "/v1/jobs/a/cancel", `{"reason":"x"}`, "Content-Type", "").problem(t, http.StatusUnsupportedMediaType)
	encoded := b.post(t, "/v1/jobs/a/cancel", `{"reason":"x"}`, "Content-Encoding", "gzip")
	if encoded.problem(t, http.StatusUnsupportedMediaType); encoded.header.Get("Accept-Encoding") != "identity" {
		t.Errorf("header %v", encoded.header)
	}
	if p := b.post(t, "/v1/jobs/a/cancel", "{\"reason\":\"\xff\"}").problem(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0] != (ProblemField{"body", "is not UTF-8, as JSON is"}) {
		t.Errorf("%+v", p.Errors)
	}
	b.post(t, "/v1/jobs/a/cancel", `{"reason":`).problem(t, http.StatusBadRequest)
	for body, location := range map[string]string{
		`{"reason":"` + strings.Repeat("x", 501) + `"}`: "body.reason", `{"reason":7}`: "body.reason", `{"raeson":"x"}`: "body.raeson", `[]`: "body",
	} {
		if p := b.post(t, "/v1/jobs/a/cancel", body).problem(t, http.StatusUnprocessableEntity); len(p.Errors) == 0 || p.Errors[0].Location != location {
			t.Errorf("%.40s: %+v, want it to be about %s", body, p.Errors, location)
		}
	}
	b.audited(t, []string{
		`action="pause jobs" name=ann target=a count=1 refused=0 result=ok reason=tea`,
		`action="resume jobs" name=ann target=a count=1 refused=0 result=ok reason=""`,
		`action="cancel jobs" name=ann target=a count=1 refused=0 result=ok reason=""`,
		`action="retry jobs" name=ann target=a count=1 refused=0 result=ok reason=""`,
		`action="resume jobs" name=ann target=a count=0 refused=1 result=ok reason=""`,
		`action="cancel jobs" name=ann target=nope count=0 refused=1 result=ok reason=""`,
	})
}

func TestActOnMany(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", []jobs.Option{jobs.Key("alice"), jobs.Batch("monday")}, "a1", "a2", "a3")
	b.add(t, "stock", []jobs.Option{jobs.Key("bob")}, "b1")
	none, one, three := 0, 1, 3
	for i, step := range []struct {
		verb, body string
		want       Acted
	}{
		{"pause", `{"destination":"shop","dry_run":true}`, Acted{Matched: &three}},
		{"cancel", `{"key":"bob","status":["pending","paused"],"dry_run":true}`, Acted{Matched: &one}},
		{"cancel", `{"since":"2026-01-31T14:30:00Z","batch":"monday","dry_run":true}`, Acted{Matched: &three}},
		{"cancel", `{"until":"2026-01-31T14:30:00Z","dry_run":true}`, Acted{Matched: &none}},
		{"cancel", `{"batch":"monday","error":"boom","dry_run":true}`, Acted{Matched: &none}},
		{"cancel", `{"batch":"monday","cause":"timeout","dry_run":true}`, Acted{Matched: &none}},
		{"pause", `{"batch":"monday","reason":"tea"}`, Acted{Done: 3}},
		{"pause", `{"batch":"monday"}`, Acted{}},
		{"resume", `{"destination":"shop","key":"alice"}`, Acted{Done: 3}},
		{"cancel", `{"status":["pending"]}`, Acted{Done: 4}},
		{"retry", `{"status":["cancelled","failed"],"destination":"stock"}`, Acted{Done: 1}},
		{"cancel", `{"batch":"tuesday"}`, Acted{}},
	} {
		if diff := cmp.Diff(step.want, decode[Acted](t, b.post(t, "/v1/jobs/"+step.verb, step.body).ok(t, http.StatusOK))); diff != "" {
			t.Errorf("step %d, %s %s (-want +got)\n%s", i, step.verb, step.body, diff)
		}
	}
	for _, row := range [][3]string{
		{"cancel", `{}`, "body.filter"},
		{"cancel", `{"reason":"x"}`, "body.filter"},
		{"cancel", `{"status":[]}`, "body.status"},
		{"cancel", `{"status":["completed"]}`, "body.status"},
		{"retry", `{"status":["pending"]}`, "body.status"},
		{"cancel", `{"status":["done"]}`, "body.status[0]"},
		{"cancel", `{"status":"pending"}`, "body.status"},
		{"cancel", `{"destination":""}`, "body.destination"},
		{"cancel", `{"key":""}`, "body.key"},
		{"cancel", `{"destination":"blog"}`, "body.destination"},
		{"cancel", `{"destination":"blog","dry_run":true}`, "body.destination"},
		{"cancel", `{"batch":"a b"}`, "body.batch"},
		{"cancel", `{"since":"yesterday"}`, "body.since"},
		{"cancel", `{"cause":"Rate"}`, "body.cause"},
		{"cancel", `{"destination":"shop","dryrun":true}`, "body.dryrun"},
		{"cancel", `{"destination":"shop","dry_run":"false"}`, "body.dry_run"},
	} {
		if p := b.post(t, "/v1/jobs/"+row[0], row[1]).problem(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0].Location != row[2] {
			t.Errorf("%s %s: %+v, want it to be about %s", row[0], row[1], p.Errors, row[2])
		}
	}
	b.post(t, "/v1/jobs/cancel", ``).problem(t, http.StatusBadRequest)
	b.audited(t, []string{
		`action="pause jobs" name=ann target="jobs in batch monday" count=3 refused=0 result=ok reason=tea`,
		`action="pause jobs" name=ann target="jobs in batch monday" count=0 refused=0 result=ok reason=""`,
		`action="resume jobs" name=ann target="jobs of shop with key alice" count=3 refused=0 result=ok reason=""`,
		`action="cancel jobs" name=ann target="pending jobs" count=4 refused=0 result=ok reason=""`,
		`action="retry jobs" name=ann target="cancelled, failed jobs of stock" count=1 refused=0 result=ok reason=""`,
		`action="cancel jobs" name=ann target="jobs in batch tuesday" count=0 refused=0 result=ok reason=""`,
		`action="cancel jobs" name=ann target="jobs of blog" count=0 refused=0 result=ok reason=""`,
	})
}

func TestBreakers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	status := func(g got) breaker.Status { return decode[breaker.Status](t, g.ok(t, http.StatusOK)) }
	if s := status(b.get(t, "/v1/breakers/shop")); s.Name != "shop" || s.State != breaker.Closed {
		t.Errorf("%+v", s)
	}
	s := status(b.post(t, "/v1/breakers/shop/trip", `{"for":"10m","reason":"maintenance"}`))
	if s.State != breaker.Open || s.Reason != "maintenance" || s.TrippedBy != "token:ann" || s.Remaining > 10*time.Minute+time.Millisecond || s.Remaining < 9*time.Minute {
		t.Errorf("%+v", s)
	}
	// The breaker of a key goes by two names.
	if s := status(b.post(t, "/v1/breakers/shop%2Falice/trip", ``)); s.Name != "shop/alice" || !s.UntilReset {
		t.Errorf("%+v", s)
	}
	if s := status(b.get(t, "/v1/breakers/shop?key=alice")); s.Name != "shop/alice" || s.State != breaker.Open {
		t.Errorf("%+v", s)
	}
	var named []string
	for _, s := range decode[ops.List[breaker.Status]](t, b.get(t, "/v1/breakers").ok(t, http.StatusOK)).Items {
		named = append(named, s.Name+" "+s.State.String())
	}
	if want := []string{"shop OPEN", "shop/alice OPEN", "stock CLOSED"}; !slices.Equal(named, want) {
		t.Errorf("breakers %v, want %v", named, want)
	}
	var paged []string
	for next, cursor := "", ""; len(paged) == 0 || next != ""; cursor = "&cursor=" + url.QueryEscape(next) {
		p := decode[ops.Page[breaker.Status]](t, b.get(t, "/v1/breakers?limit=1"+cursor).ok(t, http.StatusOK))
		for _, s := range p.Items {
			paged = append(paged, s.Name+" "+s.State.String())
		}
		next = p.Next
	}
	if !slices.Equal(named, paged) {
		t.Errorf("in pages %v, want %v", paged, named)
	}
	if items := decode[ops.List[breaker.Status]](t, b.get(t, "/v1/breakers?destination=stock").ok(t, http.StatusOK)).Items; len(items) != 1 || items[0].Name != "stock" {
		t.Errorf("of stock: %+v", items)
	}
	if s := status(b.post(t, "/v1/breakers/shop/reset", `{"reason":"done"}`)); s.State != breaker.Closed {
		t.Errorf("%+v", s)
	}
	incidents := decode[ops.List[breaker.Incident]](t, b.get(t, "/v1/breakers/shop/incidents").ok(t, http.StatusOK)).Items
	if len(incidents) != 1 || incidents[0].Cause != breaker.CauseManual || incidents[0].EndedBy != breaker.CauseReset || incidents[0].Reason != "maintenance" || incidents[0].By != "token:ann" {
		t.Errorf("incidents %+v", incidents)
	}
	events := decode[ops.List[breaker.Event]](t, b.get(t, "/v1/breakers/shop/history?limit=2").ok(t, http.StatusOK)).Items
	if len(events) != 2 || events[0].To != breaker.Open || events[1].To != breaker.Closed || events[1].By != "token:ann" {
		t.Errorf("history %+v", events)
	}
	if body := b.get(t, "/v1/breakers/stock/incidents").ok(t, http.StatusOK).body; strings.TrimSpace(body) != `{"items":[]}` {
		t.Errorf("incidents of none: %s", body)
	}
	for body, location := range map[string]string{
		`{"for":"soon"}`: "body.for", `{"for":"0"}`: "body.for", `{"for":""}`: "body.for", `{"for":"-5m"}`: "body.for", `{"for":7}`: "body.for", `{"reason":"` + strings.Repeat("x", 501) + `"}`: "body.reason",
	} {
		if p := b.post(t, "/v1/breakers/shop/trip", body).problem(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%.40s: %+v", body, p.Errors)
		}
	}
	b.audited(t, []string{
		`action="trip breaker" name=ann target=shop for="for 10m" result=ok reason=maintenance`,
		`action="trip breaker" name=ann target=shop/alice for="until it is reset" result=ok reason=""`,
		`action="reset breaker" name=ann target=shop result=ok reason=done`,
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	br, err := breaker.New(t.Context(), b.rdb, breaker.Options{Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 5}}})
	if err != nil {
		t.Fatal(err)
	}
	defer br.Close()
	permit, err := br.Key("alice").Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := permit.Report(t.Context(), breaker.Success().WithBudget(breaker.Budget{Remaining: 1, Limit: 100, Reset: time.Hour})); err != nil {
		t.Fatal(err)
	}
	names := func(path string) (names []string, next string) {
		found := decode[ops.Page[ops.Limits]](t, b.get(t, path).ok(t, http.StatusOK))
		for _, l := range found.Items {
			names = append(names, l.Name)
		}
		return names, found.Next
	}
	if got, next := names("/v1/limits"); !slices.Equal(got, []string{"shop", "shop/alice", "stock"}) || next != "" {
		t.Errorf("limits of %v, next %q", got, next)
	}
	first, next := names("/v1/limits?limit=1&destination=shop")
	second, _ := names("/v1/limits?destination=shop&cursor=" + url.QueryEscape(next))
	if !slices.Equal(slices.Concat(first, second), []string{"shop", "shop/alice"}) {
		t.Errorf("pages %v, %v", first, second)
	}
	shop := decode[ops.Limits](t, b.get(t, "/v1/limits/shop").ok(t, http.StatusOK))
	if w := shop.Declared; len(w) != 1 || w[0].Limit != 60 || w[0].Window != time.Hour || w[0].Used != 1 || w[0].ResetsAt.IsZero() {
		t.Errorf("of the destination: %+v", shop)
	}
	alice := b.get(t, "/v1/limits/shop?key=alice").ok(t, http.StatusOK).body
	if want := regexp.MustCompile(`^{"name":"shop/alice","declared":\[\],"announced":\[{"name":null,"limit":100,"window_secs":null,"burst":null,"zone":null,"used":99,"remaining":1,"resets_at":"[^"]*Z"}\],"concurrency":null,"learned":null,"named":\[\],"override":null}\n$`); !want.MatchString(alice) {
		t.Errorf("of the key: %s", alice)
	}
	if got := b.post(t, "/v1/limits/shop%2Falice/forget", `{"reason":"wrong"}`).ok(t, http.StatusOK).body; got != `{"name":"shop/alice","declared":[],"announced":[],"concurrency":null,"learned":null,"named":[],"override":null}`+"\n" {
		t.Errorf("forgotten: %s", got)
	}
	events := decode[ops.List[breaker.Event]](t, b.get(t, "/v1/breakers/shop%2Falice/history?limit=1").ok(t, http.StatusOK)).Items
	if len(events) != 1 || events[0].Cause != breaker.CauseForgotten || events[0].By != "token:ann" {
		t.Errorf("history %+v", events)
	}
	b.audited(t, []string{`action="forget limits" name=ann target=shop/alice result=ok reason=wrong`})
}

// An operator's limit is set, shown and unset over HTTP, and the audit says by whom and why.
func TestOperatorsLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/v1/limits/shop/override"
	call := func(method, path, body string) got {
		t.Helper()
		return b.call(t, method, path, body, "Content-Type", "application/json")
	}
	set := decode[ops.Limits](t, call(http.MethodPut, path, `{"rate":"5/1s","for":"1h","reason":"asked"}`).ok(t, http.StatusOK)).Override
	if set == nil || set.Rate != "5/1s" || set.By != "token:ann" || set.Reason != "asked" || set.Until.Sub(set.At) != time.Hour {
		t.Fatalf("set %+v", set)
	}
	if got := decode[ops.Limits](t, b.get(t, "/v1/limits/shop").ok(t, http.StatusOK)).Override; !cmp.Equal(got, set) {
		t.Errorf("got %+v", got)
	}
	for body, location := range map[string]string{
		`{"rate":"5"}`: "body.rate", `{"rate":"off","for":"x"}`: "body.for", `{"rate":"5/1s","until":"2001-01-01T00:00:00Z"}`: "body.until", `{}`: "body",
	} {
		if p := call(http.MethodPut, path, body).problem(t, http.StatusUnprocessableEntity); len(p.Errors) == 0 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v, want it to be about %s", body, p.Errors, location)
		}
	}
	call(http.MethodPut, "/v1/limits/nope/override", `{"rate":"off"}`).problem(t, http.StatusNotFound)
	for range 2 { // the second changes nothing
		if got := decode[ops.Limits](t, call(http.MethodDelete, path, `{"reason":"over"}`).ok(t, http.StatusOK)); got.Override != nil {
			t.Errorf("unset: %+v", got.Override)
		}
	}
	first := decode[ops.Page[ops.AuditEntry]](t, b.get(t, "/v1/audit?limit=1&who=ann").ok(t, http.StatusOK))
	second := decode[ops.Page[ops.AuditEntry]](t, b.get(t, "/v1/audit?limit=1&action=limit&cursor="+first.Next).ok(t, http.StatusOK))
	var acts []string
	for _, e := range slices.Concat(first.Items, second.Items) {
		acts = append(acts, strings.Join([]string{e.By, e.Action, e.Target, e.Detail, e.Reason}, ";"))
	}
	if want := []string{"token:ann;unset limit;shop;;over", "token:ann;set limit;shop;5/1s, for 1h;asked"}; !slices.Equal(acts, want) || second.Next != "" {
		t.Errorf("audit %q, next %q", acts, second.Next)
	}
	b.get(t, "/v1/audit?cursor=x").problem(t, http.StatusUnprocessableEntity)
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.add(t, "shop", nil, "a", "b")
	for i, step := range []struct {
		verb string
		want ops.PausedDestination
	}{
		{"pause", ops.PausedDestination{Destination: "shop", Paused: true, Changed: true}},
		{"pause", ops.PausedDestination{Destination: "shop", Paused: true, Changed: false}},
		{"resume", ops.PausedDestination{Destination: "shop", Paused: false, Changed: true}},
		{"resume", ops.PausedDestination{Destination: "shop", Paused: false, Changed: false}},
		{"pause", ops.PausedDestination{Destination: "shop", Paused: true, Changed: true}},
	} {
		if got := decode[ops.PausedDestination](t, b.post(t, "/v1/destinations/shop/"+step.verb, ``).ok(t, http.StatusOK)); got != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	b.post(t, "/v1/destinations/blog/pause", ``).problem(t, http.StatusNotFound)
	line := func(verb string) string {
		return `action="` + verb + ` destination" name=ann target=shop result=ok reason=""`
	}
	b.audited(t, []string{line("pause"), line("pause"), line("resume"), line("resume"), line("pause")})
	in := b.call(t, http.MethodDelete, "/v1/destinations/shop", ``).problem(t, http.StatusConflict)
	if !strings.Contains(in.Detail, "in use") {
		t.Errorf("%+v", in)
	}
	b.call(t, http.MethodDelete, "/v1/destinations/blog", ``).problem(t, http.StatusNotFound)
	b.post(t, "/v1/destinations/Blog/pause", ``).problem(t, http.StatusUnprocessableEntity)
	if diff := cmp.Diff([]ops.Destination{{Name: "shop", Paused: true, Backlog: 2}, {Name: "stock"}}, decode[ops.List[ops.Destination]](t, b.get(t, "/v1/destinations").ok(t, http.StatusOK)).Items); diff != "" {
		t.Errorf("destinations (-want +got)\n%s", diff)
	}
	stats := decode[ops.List[ops.Stats]](t, b.get(t, "/v1/stats").ok(t, http.StatusOK)).Items
	if len(stats) != 2 || stats[0].Destination != "shop" || stats[0].Counts[jobs.Pending] != 2 || stats[0].Breaker.Name != "shop" || !stats[0].Paused || stats[1].Backlog != 0 {
		t.Errorf("stats %+v", stats)
	}
	if stats := decode[ops.List[ops.Stats]](t, b.get(t, "/v1/stats?destination=stock").ok(t, http.StatusOK)).Items; len(stats) != 1 || stats[0].Destination != "stock" {
		t.Errorf("stats of stock %+v", stats)
	}
	if body := b.get(t, "/v1/workers").ok(t, http.StatusOK).body; strings.TrimSpace(body) != `{"items":[]}` {
		t.Errorf("workers %s", body)
	}
	now := time.Now()
	since := now.Add(-time.Minute).Truncate(time.Millisecond).UTC()
	text, err := json.Marshal(store.Worker{
		StartedAt: now.UnixMilli(), SeenAt: now.UnixMilli(), Destinations: []string{"shop"},
		Unreachable: map[string]store.Unreachable{"shop": {Since: since.UnixMilli(), Problem: "no such host"}},
	})
	if err == nil {
		err = b.rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), "host:1", text).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	workers := decode[ops.List[Worker]](t, b.get(t, "/v1/workers").ok(t, http.StatusOK)).Items
	if diff := cmp.Diff(map[string]jobs.UnreachableInfo{"shop": {Since: since, Problem: "no such host"}}, workers[0].Unreachable); diff != "" {
		t.Errorf("what the worker does not reach (-want +got)\n%s", diff)
	}
}

// Names that a header could carry further stay within the body.
func TestNothingIsReflectedIntoHeaders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, path := range []string{"/v1/jobs/x%0d%0aX-Evil:1", "/v1/jobs?status=x%0d%0aX-Evil:1", "/v1/breakers/x%0d%0aX-Evil:1", "/v1/%0d%0aX-Evil:1"} {
		if answer := b.get(t, path); answer.header.Get("X-Evil") != "" || answer.status < 400 {
			t.Errorf("%s: %d %v", path, answer.status, answer.header)
		}
	}
	answer := b.post(t, "/v1/jobs", fmt.Sprintf(`{"id":%q,"destination":"shop","payload":1}`, "x\r\nX-Evil: 1"))
	answer.problem(t, http.StatusUnprocessableEntity)
	if answer.header.Get("Location") != "" || answer.header.Get("X-Evil") != "" {
		t.Errorf("header %v", answer.header)
	}
}

// The jobs that an API refuses alone are shown with the destination's breaker.
func TestBreakerRefusedAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	read := func(path string) string {
		t.Helper()
		return string(decode[map[string]json.RawMessage](t, b.get(t, path).ok(t, http.StatusOK))["refused_alone"])
	}
	if got := read("/v1/breakers/shop"); got != "null" {
		t.Errorf("without any: %q", got)
	}
	for i := range 3 {
		err := store.DefaultNamespace.CountRefusedAlone(t.Context(), b.rdb, "shop", "post-1", "refused 4 times while 812 other calls were accepted", time.Now(), i == 0, i == 2)
		if err != nil {
			t.Fatal(err)
		}
	}
	var r jobs.RefusedAlone
	if err := json.Unmarshal([]byte(read("/v1/breakers/shop")), &r); err != nil || r.Jobs != 1 || r.Refusals != 3 || r.Failed != 1 || r.Job != "post-1" {
		t.Errorf("%+v, %v", r, err)
	}
	if got := read("/v1/breakers/shop%2Falice"); got != "null" {
		t.Errorf("of a key: %q", got)
	}
}

// A retry changes what set names, of one job and of a filter's, and says what does not fit.
func TestRetryWithSet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"a", "b", "c"} {
		b.add(t, "shop", nil, id)
		b.post(t, "/v1/jobs/"+id+"/cancel", ``).ok(t, http.StatusOK)
	}
	for body, location := range map[string]string{
		`{"set":{"key":"bob"}}`: "body.set", `{"set":{"payload.x.y.z":1}}`: "body.set", `{"sets":{}}`: "body.sets", `{"set":[]}`: "body.set",
	} {
		if p := b.post(t, "/v1/jobs/a/retry", body).problem(t, http.StatusUnprocessableEntity); len(p.Errors) != 1 || p.Errors[0].Location != location {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	b.post(t, "/v1/jobs/a/pause", `{"set":{"payload":1}}`).problem(t, http.StatusUnprocessableEntity)
	b.post(t, "/v1/jobs/a/retry", `{"set":{"payload":{"n":1},"payload.n":9007199254740993,"request.path":"/x"},"reason":"wrong"}`).ok(t, http.StatusOK)
	if job, err := b.client.Get(t.Context(), "a"); err != nil || string(job.Payload) != `{"n":9007199254740993}` || job.Request.Path != "/x" || job.Status != jobs.Pending {
		t.Errorf("the job is %+v; %v", job, err)
	}
	got := decode[Acted](t, b.post(t, "/v1/jobs/retry", `{"status":["cancelled"],"destination":"shop","set":{"payload":null}}`).ok(t, http.StatusOK))
	if got.Done != 2 {
		t.Errorf("a filter: %+v", got)
	}
	b.post(t, "/v1/jobs/a/retry", `{"set":{"payload":2}}`).problem(t, http.StatusConflict)
	if lines := b.log.lines("msg=audit"); !strings.Contains(strings.Join(lines, ""), `change="set payload, payload.n, request.path"`) {
		t.Errorf("the audit has %q", lines)
	}
}
