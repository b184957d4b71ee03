package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "breaker", "list").want(t, 0, "NAME  STATE   FAILURES  DETAIL\nshop  CLOSED  0\n", "")
	b.run(t, "breaker", "get", "shop").want(t, 0, "breaker   shop\nstate     CLOSED\nfailures  0 in a row\n", "")
	b.run(t, "breaker", "history", "shop").want(t, 0, "no transitions: it has been CLOSED all the time\n", "")
	if out := b.run(t, "breaker", "history", "shop", "-o", "json").ok(t); out != "{\"items\":[],\"next\":\"\"}\n" {
		t.Errorf("empty history %q", out)
	}

	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	by := me.Username + "@" + host
	before := time.Now()
	tripped := decode[breaker.Status](t, b.run(t, "breaker", "trip", "shop", "--for", "10m", "--reason", "tea\x1b[2J", "-o", "json").ok(t))
	if tripped.State != breaker.Open || tripped.Cause != breaker.CauseManual || tripped.TrippedBy != by || tripped.Reason != "tea\x1b[2J" ||
		tripped.OpenUntilRedis.Sub(before).Round(time.Minute) != 10*time.Minute {
		t.Errorf("tripped %+v, want by %s for 10m", tripped, by)
	}
	want := regexp.MustCompile(`^breaker        shop
state          OPEN
reopens        in (10m|9m[0-9]+s), at ([0-9-]+ )?[0-9:]{8}
next probe     then, by the first worker that has a job
failures       0 in a row
cause          opened by hand
by             ` + regexp.QuoteMeta(by) + `
reason         tea\[2J
since          ([0-9-]+ )?[0-9:]{8} \([0-9ms]+ ago\)
failed probes  0
wasted calls   0
rescheduled    0 jobs
incident       ` + regexp.QuoteMeta(tripped.Incident) + `
$`)
	if out := b.run(t, "breaker", "get", "shop").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	list := decode[ops.Page[breaker.Status]](t, b.run(t, "breaker", "list", "-o", "json").ok(t))
	if len(list.Items) != 1 || list.Items[0].State != breaker.Open || list.Next != "" {
		t.Errorf("list %+v", list)
	}
	if out := b.run(t, "breaker", "list").ok(t); !strings.Contains(out, "shop  OPEN   0         reopens in ") {
		t.Errorf("list:\n%s", out)
	}

	if out := b.run(t, "breaker", "trip", "shop").ok(t); !strings.Contains(out, "reopens        never by itself; close it with: tidegate breaker reset shop\n") {
		t.Errorf("tripped until reset:\n%s", out)
	}
	if out := b.run(t, "breaker", "list").ok(t); !strings.Contains(out, "shop  OPEN   0         opened by hand until it is reset\n") {
		t.Errorf("list:\n%s", out)
	}
	b.run(t, "breaker", "reset", "shop").want(t, 0,
		"breaker     shop\nstate       CLOSED\nslow start  1 call in flight at most; doubles as they succeed, and stays as it is without calls\nfailures    0 in a row\n", "")
	b.run(t, "breaker", "reset", "shop").want(t, 0, "breaker   shop\nstate     CLOSED\nfailures  0 in a row\n", "")

	history := decode[ops.Page[breaker.Event]](t, b.run(t, "breaker", "history", "shop", "-o", "json").ok(t))
	var states []string
	for _, e := range history.Items {
		states = append(states, e.From.String()+">"+e.To.String()+" "+e.Cause+" "+e.By)
	}
	if got, want := strings.Join(states, ", "), "CLOSED>OPEN manual "+by+", OPEN>OPEN manual "+by+", OPEN>CLOSED reset "+by+", CLOSED>CLOSED reset "+by; got != want {
		t.Errorf("history %s\nwant %s", got, want)
	}
	out := b.run(t, "breaker", "history", "shop", "--limit", "1").ok(t)
	if want := regexp.MustCompile(`^AT +FROM    TO      WHY             BY +INCIDENT +WASTED\n([0-9-]+ )?[0-9:]{8}  CLOSED  CLOSED  closed by hand  \S+ +- +0\n$`); !want.MatchString(out) {
		t.Errorf("history\n%s\nwant\n%s", out, want)
	}
}

// The jobs that an API refuses alone are shown with the destination's breaker.
func TestBreakerRefusedAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	read := func() (d struct {
		Name         string
		RefusedAlone *jobs.RefusedAlone `json:"refused_alone"`
	},
	) {
		t.Helper()
		if err := json.Unmarshal([]byte(b.run(t, "breaker", "get", "shop", "-o", "json").ok(t)), &d); err != nil {
			t.Error(err)
		}
		return d
	}
	if d := read(); d.RefusedAlone != nil || d.Name != "shop" {
		t.Errorf("without any: %+v", d)
	}
	rdb := b.server.Client(t)
	for i := range 3 {
		err := store.DefaultNamespace.CountRefusedAlone(t.Context(), rdb, "shop", "post-1", "refused 4 times while 812 other calls were accepted", time.Now(), i == 0, i == 2)
		if err != nil {
			t.Fatal(err)
		}
	}
	want := regexp.MustCompile(`(?m)^refused alone +1 job since \S+, 3 refusals, 1 failed; the last one, post-1, was refused 4 times while 812 other calls were accepted; see: tidegate get post-1$`)
	if out := b.run(t, "breaker", "get", "shop").ok(t); !want.MatchString(out) {
		t.Errorf("get prints\n%s", out)
	}
	if r := read().RefusedAlone; r == nil || r.Jobs != 1 || r.Refusals != 3 || r.Failed != 1 || r.Job != "post-1" {
		t.Errorf("as JSON: %+v", r)
	}
}

// A destination whose keys are limited has not been CLOSED all the time.
func TestIncidentsOfKeysAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "breaker", "trip", "shop/alice").ok(t)
	b.run(t, "breaker", "trip", "shop/bob").ok(t)
	for command, what := range map[string]string{"incidents": "incidents", "history": "transitions"} {
		b.run(t, "breaker", command, "shop").want(t, 0, "no "+what+" of shop itself, but of its keys:\n"+
			"2 keys are opened by hand: tidegate breaker "+command+" shop/alice; all: tidegate breaker list --destination shop\n", "")
	}
	b.run(t, "breaker", "trip", "shop").ok(t)
	if out := b.run(t, "breaker", "incidents", "shop").ok(t); !strings.Contains(out, "still lasts") || !strings.Contains(out, "2 keys are opened by hand") {
		t.Errorf("printed\n%s", out)
	}
	for _, name := range []string{"shop", "shop/alice", "shop/bob"} {
		b.run(t, "breaker", "reset", name).ok(t)
	}
	if out := b.run(t, "breaker", "incidents", "shop").ok(t); !strings.Contains(out, "\n2 incidents of keys, 0 wasted calls, the latest: tidegate breaker incidents shop/bob; all: ") {
		t.Errorf("closed again: printed\n%s", out)
	}
	b.run(t, "breaker", "incidents", "shop/carol").want(t, 0, "no incidents: it has been CLOSED all the time\n", "")
}

// Keys whose breakers have opened and closed again, or did not open, have refused calls all the same.
func TestPastIncidentsOfKeysAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	api, err := breaker.New(t.Context(), b.server.Client(t), breaker.Options{Destination: "shop", Instance: "worker-1"})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	refused := func(key string) {
		permit, err := api.Key(key).Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := permit.Report(t.Context(), breaker.RateLimited(0)); err != nil {
			t.Fatal(err)
		}
	}
	refused("bob")
	b.run(t, "breaker", "incidents", "shop").want(t, 0, "no incidents of shop itself, but of its keys:\n"+
		"calls of shop/bob were refused, too few to open its breaker: tidegate breaker incidents shop/bob; all: tidegate breaker list --destination shop\n", "")
	for range 3 {
		refused("alice")
	}
	b.run(t, "breaker", "reset", "shop/alice").ok(t)
	b.run(t, "breaker", "incidents", "shop").want(t, 0, "no incidents of shop itself, but of its keys:\n"+
		"1 incident of keys, 3 wasted calls, the latest: tidegate breaker incidents shop/alice; all: tidegate breaker list --destination shop\n", "")
}

// A wait above the longest cooldown is shown as the API asked for it, and forecast so.
func TestLongWaitIsShownAsAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	api, err := breaker.New(t.Context(), b.server.Client(t), breaker.Options{Destination: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	permit, err := api.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := permit.Report(t.Context(), breaker.RateLimited(22*time.Hour)); err != nil {
		t.Fatal(err)
	}
	b.run(t, "enqueue", "--destination", "shop", "--id", "post-1").ok(t)
	const asked = `asked for (22h|21h5[0-9]m), until [0-9: -]+; tested before, unless the API says so again`
	for command, want := range map[string]string{
		"breaker get shop": `\nreopens +in (1h|59m[0-9]*s?), at [0-9: -]+\nnext probe .*\nthe API +` + asked + `\n`,
		"breaker list":     `reopens in [0-9hms]+, at [0-9: -]+; the API ` + asked,
		"get post-1":       `; the API ` + asked,
		"limits shop":      `shop +announced +- +0 left +(22h|21h5[0-9]m) `,
	} {
		if out := b.run(t, strings.Fields(command)...).ok(t); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s printed\n%s\nwant %s", command, out, want)
		}
	}
	status := decode[breaker.Status](t, b.run(t, "breaker", "get", "shop", "-o", "json").ok(t))
	if left := time.Until(status.AskedUntil); left < 21*time.Hour || left > 22*time.Hour {
		t.Errorf("asked_until is in %v, want 22 hours", left)
	}
}

// Keys that met a limit once do not fill the list: limited ones come first, the rest is counted.
func TestListOfManyKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	rdb := b.server.Client(t)
	for i := range 15 {
		name := fmt.Sprintf("shop/k%02d", i)
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), rdb, name, breaker.TripOptions{For: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if i == 14 {
			break
		}
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), rdb, name, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	out := b.run(t, "breaker", "list").ok(t)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 14 || !strings.HasPrefix(lines[2], "shop/k14 ") || lines[13] != "4 other keys of shop met a limit and can be called; all: -o json" {
		t.Errorf("printed\n%s", out)
	}
	first := decode[ops.Page[breaker.Status]](t, b.run(t, "breaker", "list", "-n", "5", "-o", "json").ok(t))
	rest := decode[ops.Page[breaker.Status]](t, b.run(t, "breaker", "list", "--cursor", first.Next, "-o", "json").ok(t))
	if len(first.Items) != 5 || first.Items[1].Name != "shop/k14" || len(rest.Items) != 11 || rest.Next != "" {
		t.Errorf("pages of %d and %d as JSON, want 16 in all", len(first.Items), len(rest.Items))
	}
	b.run(t, "breaker", "list", "--cursor", "x", "-o", "json").want(t, 2, "", `{"error":"--cursor: `+explain.ErrInvalidCursor.Error()+"\"}\n")
	b.run(t, "breaker", "list", "-n", "0").want(t, 2, "", "tidegate: --limit must be from 1 to 1000\n")
}

func TestBreakerIncidents(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "breaker", "incidents", "shop").want(t, 0, "no incidents: it has been CLOSED all the time\n", "")
	b.run(t, "breaker", "trip", "shop", "--reason", "tea").ok(t)
	b.run(t, "breaker", "reset", "shop").ok(t)
	b.run(t, "breaker", "trip", "shop").ok(t)
	list := decode[ops.Page[breaker.Incident]](t, b.run(t, "breaker", "incidents", "shop", "-o", "json").ok(t)).Items
	if len(list) != 2 || list[0].Reason != "tea" || list[0].EndedBy != breaker.CauseReset || list[0].Ended.IsZero() ||
		!list[1].Ended.IsZero() || list[1].Cause != breaker.CauseManual || list[0].ID == list[1].ID {
		t.Errorf("incidents %+v", list)
	}
	out := b.run(t, "breaker", "incidents", "shop").ok(t)
	want := regexp.MustCompile(`^STARTED +LASTED +WHY +ENDED BY +PROBES +WASTED +RESCHEDULED +INSTANCES\n` +
		`\S.* opened by hand \(tea\) +closed by hand +0 +0 +0 +-\n\S.* still lasts +opened by hand +- +0 +0 +0 +-\n$`)
	if !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}
