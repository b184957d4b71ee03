package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// on is call at one of the two instances.
func (h *house) on(i int, name, method, path, body string) (int, string) {
	h.t.Helper()
	r := h.request(name, method, path, body)
	r.URL.Host = strings.TrimPrefix(h.urls[i%2], "http://")
	return h.do(r)
}

// permit asks for a permit of a key of shop, and returns its id.
func (h *house) permit(i int, name, key string) string {
	h.t.Helper()
	status, text := h.on(i, name, "POST", "/v1/permits", `{"destination":"shop","key":"`+key+`"}`)
	var granted struct{ ID string }
	if err := json.Unmarshal([]byte(text), &granted); err != nil || status != http.StatusOK {
		h.t.Fatalf("a permit of %s: %d %s", key, status, text)
	}
	return granted.ID
}

func (h *house) report(i int, name, id, body string) {
	h.t.Helper()
	if status, text := h.on(i, name, "POST", "/v1/permits/"+id+"/report", body); status != http.StatusOK {
		h.t.Fatalf("the report %s: %d %s", body, status, text)
	}
}

func (h *house) breaker(name string) breaker.Status {
	h.t.Helper()
	s, err := breaker.DefaultNamespace.Get(h.t.Context(), h.rdb, name)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// Whatever a tenant reports of its permits, the destination and the keys of others stay as they are.
func TestReportsOfTenantsAreAboutTheirKeysOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, report string }{
		{"500", `{"status":500}`},
		{"503", `{"status":503,"headers":{"Retry-After":"600"}}`},
		{"401", `{"status":401}`},
		{"403", `{"status":403}`},
		{"429", `{"status":429}`},
		{"429 of all", `{"status":429,"headers":{"X-RateLimit-Scope":"global","X-RateLimit-Global":"true","Retry-After":"600"}}`},
		{"nothing left", `{"status":200,"headers":{"X-RateLimit-Remaining":"0","X-RateLimit-Limit":"10","X-RateLimit-Reset":"600"}}`},
		{"limited", `{"outcome":"limited","retry_after":"10m"}`},
		{"failure", `{"outcome":"failure"}`},
		{"unauthorized", `{"outcome":"unauthorized"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, nil)
			for i := range 12 {
				h.report(i+1, "acme", h.permit(i, "acme", fmt.Sprint("acme:", i)), c.report)
			}
			for range 12 { // and one key again and again, until it is refused
				status, text := h.on(0, "acme", "POST", "/v1/permits", `{"destination":"shop","key":"acme:one"}`)
				if status != http.StatusOK {
					break
				}
				var granted struct{ ID string }
				_ = json.Unmarshal([]byte(text), &granted)
				h.report(1, "acme", granted.ID, c.report)
			}
			for i := range 15 {
				h.permit(i, "beta", fmt.Sprint("beta:", i))
				h.permit(i, "root", "r")
			}
			s := h.breaker("shop")
			if s.State != breaker.Closed || s.Failures != 0 || s.Streak != 0 || s.Budget != nil {
				t.Errorf("the destination is %s: %+v", s.State, s)
			}
			if c.name == "500" {
				// On a slow machine it may be time to test it already.
				if own := h.breaker("shop/acme:one"); own.State == breaker.Closed {
					t.Errorf("the tenant's own key is %s after ten 500", own.State)
				}
			}
		})
	}
}

// What a tenant says went well neither ends an outage of others, nor does a tenant test the destination.
func TestTenantsDoNotTestTheDestination(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for i := range 10 {
		h.report(i, "root", h.permit(i, "root", fmt.Sprint("r", i)), `{"status":500}`)
		if i < 9 {
			h.report(i, "acme", h.permit(i+1, "acme", "acme:1"), `{"status":200}`)
		}
	}
	if s := h.breaker("shop"); s.State != breaker.Open || s.Cause != breaker.CauseOutage {
		t.Fatalf("after ten failures between which a tenant reports successes: %s %s", s.State, s.Cause)
	}
	var probe string
	redistest.Eventually(t, "the operator's probe, of which the tenant gets none", func() bool {
		for i := range 4 {
			if status, text := h.on(i, "acme", "POST", "/v1/permits", `{"destination":"shop","key":"acme:1"}`); status != http.StatusTooManyRequests {
				t.Fatalf("a tenant's probe: %d %s", status, text)
			}
		}
		if s := h.breaker("shop"); s.OpenUntil.After(time.Now()) {
			return false
		}
		status, text := h.on(0, "root", "POST", "/v1/permits", `{"destination":"shop","key":"r"}`)
		var granted struct{ ID string }
		_ = json.Unmarshal([]byte(text), &granted)
		probe = granted.ID
		return status == http.StatusOK
	})
	h.report(1, "root", probe, `{"status":200}`)
	if s := h.breaker("shop"); s.State != breaker.Closed {
		t.Errorf("after the probe: %s", s.State)
	}
}

// Permits of a tenant leave half of the calls in flight to others, whatever their leases.
func TestPermitsOfTenantsLeaveSlots(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	got := 0
	for i := range 10 {
		if status, _ := h.on(i, "acme", "POST", "/v1/permits", fmt.Sprintf(`{"destination":"shop-few","key":"acme:%d","lease":"1h"}`, i)); status == http.StatusOK {
			got++
		}
	}
	for range 2 {
		if status, text := h.on(0, "root", "POST", "/v1/permits", `{"destination":"shop-few","key":"r"}`); status != http.StatusOK {
			t.Errorf("another one's: %d %s", status, text)
		}
	}
	if got != 2 {
		t.Errorf("a tenant has %d of 4 slots, want 2", got)
	}
}

// A tenant that guesses the id of another one's job gets nothing of it, though the id begins with the tenant's name.
func TestForeignParentsAndBatchesWithATenantsName(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	for _, id := range []string{"acme:secret", "acme:other"} {
		h.ok("root", "POST", "/v1/jobs", `{"id":"`+id+`","destination":"stock","payload":1,"batch":"acme:monday"}`)
	}
	h.ok("acme", "POST", "/v1/jobs", `{"id":"mine","destination":"shop","key":"acme:1","payload":1,"batch":"monday"}`)
	child := func(i int, parent string, more string) (int, string) {
		return h.on(i, "acme", "POST", "/v1/jobs", `{"destination":"shop","key":"acme:1","payload":1,"after":["`+parent+`"]`+more+`}`)
	}
	statusOf := func(parent string) string {
		status, text := child(0, parent, "")
		return fmt.Sprint(status, strings.ReplaceAll(text, parent, "ID"))
	}
	missing := statusOf("acme:nothing")
	for i, parent := range []string{"acme:secret", "secret", "acme:other"} {
		if got, want := statusOf(parent), strings.ReplaceAll(missing, "acme:nothing", "ID"); strings.ReplaceAll(got, "acme:ID", "ID") != strings.ReplaceAll(want, "acme:ID", "ID") || !strings.HasPrefix(got, "422") {
			t.Errorf("parent %d, %s: %s, want as one that does not exist: %s", i, parent, got, want)
		}
	}
	for i, parent := range []string{"mine", "acme:mine"} {
		if status, text := child(i, parent, ""); status != http.StatusCreated {
			t.Errorf("the tenant's own parent %s: %d %s", parent, status, text)
		}
	}
	// A parent in the same request, and a foreign one there.
	status, text := h.call("acme", "POST", "/v1/jobs", `[{"id":"p","destination":"shop","key":"acme:1","payload":1},`+
		`{"destination":"shop","key":"acme:1","payload":1,"after":["p"]},{"destination":"shop","key":"acme:1","payload":1,"after":["p","secret"]}]`)
	if status != http.StatusCreated || !strings.Contains(text, `"accepted":2,"duplicates":0,"rejected":1`) {
		t.Errorf("parents in one request: %d %s", status, text)
	}
	for i := range h.urls {
		for _, name := range []string{"monday", "acme:monday"} {
			if status, text := h.on(i, "acme", "GET", "/v1/batches/"+name, ""); status != http.StatusOK || !strings.Contains(text, `"total":1`) {
				t.Errorf("batch %s of the tenant: %d %s, want its own job alone", name, status, text)
			}
		}
		if status, text := h.on(i, "root", "GET", "/v1/batches/acme:monday", ""); status != http.StatusOK || !strings.Contains(text, `"total":3`) {
			t.Errorf("the batch: %d %s", status, text)
		}
	}
	h.ok("root", "POST", "/v1/jobs", `{"destination":"stock","payload":1,"batch":"acme:tuesday"}`)
	if status, text := h.call("acme", "GET", "/v1/batches/tuesday", ""); status != http.StatusNotFound {
		t.Errorf("a foreign batch: %d %s", status, text)
	}
}

// However often a tenant acts, what operators and other tenants did stays in the audit.
func TestATenantCannotEmptyTheAudit(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	act := func(ctx context.Context, name, target string, n int) {
		system := ops.New(ops.Options{Redis: h.rdb, Client: h.client})
		if b, ok := map[string]access.Bounds{"acme": {Keys: []string{"acme:*"}}, "beta": {Keys: []string{"beta:*"}}}[name]; ok {
			ctx = access.With(ctx, access.Identity{Name: name, Bounds: b})
		}
		for range n {
			system.Record(ctx, ops.AuditEntry{By: "token:" + name, Action: "pause queue", Target: target})
		}
	}
	act(t.Context(), "root", "stock", 3)
	act(t.Context(), "beta", "shop", 3)
	h.ok("acme", "POST", "/v1/jobs", `{"id":"a","destination":"shop","key":"acme:1","payload":1}`)
	for i := range 4 { // as the tenant really acts
		h.ok("acme", "POST", "/v1/jobs/a/"+[]string{"pause", "resume"}[i%2], "")
	}
	act(t.Context(), "acme", "shop", 1_000)
	count := func(who string) (n int) {
		page, err := ops.New(ops.Options{Redis: h.rdb, Client: h.client}).Audit(t.Context(), ops.AuditQuery{Who: who, Limit: 20_000})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items)
	}
	if root, beta, acme := count("token:root"), count("token:beta"), count("token:acme"); root != 3 || beta != 3 || acme != 500 {
		t.Errorf("kept of root %d, beta %d, acme %d, want 3, 3, 500", root, beta, acme)
	}
}

// What a permit cannot have is refused, with the field's name.
func TestPermitsRefuseNonsense(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	id := h.permit(0, "root", "r")
	for _, c := range []struct{ path, body, field string }{
		{"/v1/permits", `{"destination":"shop","costs":{"tokens":-5}}`, "body.costs.tokens"},
		{"/v1/permits", `{"destination":"shop","costs":{"":5}}`, "body.costs"},
		{"/v1/permits", `{"destination":"shop","lease":"-5s"}`, "body.lease"},
		{"/v1/permits/" + id + "/report", `{"status":200,"costs":{"tokens":0}}`, "body.costs.tokens"},
		{"/v1/permits/" + id + "/report", `{"outcome":"limited","retry_after":"-5s"}`, "body.retry_after"},
	} {
		if status, text := h.call("root", "POST", c.path, c.body); status != http.StatusUnprocessableEntity || !strings.Contains(text, `"`+c.field+`"`) {
			t.Errorf("%s: %d %s", c.body, status, text)
		}
	}
	h.report(0, "root", id, `{"status":200}`) // it is still there
}
