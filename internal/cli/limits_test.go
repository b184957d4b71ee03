package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/breaker/hint"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "limits").want(t, 0, "NAME  SOURCE  LIMIT       USED  RESETS IN  CONFIDENCE  SINCE\nshop  -       none known  -     -          -           -\n", "")
	if out := b.run(t, "limits", "shop", "-o", "json").ok(t); out != `{"name":"shop","declared":[],"announced":[],"concurrency":null,"learned":null,"named":[],"override":null}`+"\n" {
		t.Errorf("no limits: %s", out)
	}
	b.run(t, "limits", "forget", "shop").want(t, 0, "shop: nothing was learned or announced\n", "")

	br, err := breaker.New(t.Context(), b.server.Client(t), breaker.Options{
		Destination: "shop", Rate: breaker.Rates{{Calls: 60, Per: time.Hour, Burst: 5}, {Calls: 900, Per: breaker.Month, Zone: "UTC"}},
		KeyRate: breaker.Rates{{Calls: 10, Per: time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer br.Close()
	unused := regexp.MustCompile(`\nshop +declared +60 per 1 h, 5 at once +0 of 5 +- +- +-\nshop +declared +900 per month of UTC +0 of 900 +- +- +-\n$`)
	if out := b.run(t, "limits", "shop").ok(t); !unused.MatchString(out) {
		t.Errorf("before the first call:\n%s", out)
	}
	if out := b.run(t, "limits", "shop/bob").ok(t); !strings.Contains(out, "10 per 1 h  one call every 6m0s") {
		t.Errorf("of a key before the first call:\n%s", out)
	}
	permit, err := br.Key("alice").Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := breaker.Success().WithBudget(hint.Budget{Remaining: 1, Limit: 100, Reset: time.Hour})
	if _, err := permit.Report(t.Context(), told); err != nil {
		t.Fatal(err)
	}
	out := b.run(t, "limits").ok(t)
	want := regexp.MustCompile(`^NAME +SOURCE +LIMIT +USED +RESETS IN +CONFIDENCE +SINCE
shop +declared +60 per 1 h, 5 at once +1 of 5 +(1m|[0-9]+s) +- +-
shop +declared +900 per month of UTC +1 of 900 +[0-9hdms]+ +- +-
shop/alice +declared +10 per 1 h +one call every 6m0s +[0-9ms]+ +- +-
shop/alice +announced +100 per window +99 of 100 +(1h|59m[0-9]*s?) +- +-
$`)
	if !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if out := b.run(t, "limits", "shop/alice").ok(t); strings.Contains(out, "60 per 1 h") || !strings.Contains(out, "99 of 100") {
		t.Errorf("of the key:\n%s", out)
	}
	of := regexp.MustCompile(`CLOSED\ndeclared +60 per 1 h, 5 at once; used 1 of 5; resets in (1m|[0-9]+s)
declared +900 per month of UTC; used 1 of 900; resets in [0-9hdms]+\nfailures`)
	if out := b.run(t, "breaker", "get", "shop").ok(t); !of.MatchString(out) {
		t.Errorf("the breaker:\n%s\nwant\n%s", out, of)
	}
	if out := b.run(t, "breaker", "get", "shop/alice").ok(t); strings.Contains(out, "\ndeclared") || strings.Contains(out, "\nannounced") {
		t.Errorf("the breaker of the key:\n%s", out)
	}
	all := decode[ops.Page[ops.Limits]](t, b.run(t, "limits", "--destination", "shop", "-n", "1", "-o", "json").ok(t))
	if len(all.Items) != 1 || all.Items[0].Name != "shop" || all.Items[0].Declared[0].Used != 1 || all.Next == "" {
		t.Errorf("first page %+v", all)
	}
	all = decode[ops.Page[ops.Limits]](t, b.run(t, "limits", "--destination", "shop", "--cursor", all.Next, "-o", "json").ok(t))
	if len(all.Items) != 1 || all.Items[0].Name != "shop/alice" || all.Items[0].Announced[0].Remaining != 1 {
		t.Errorf("second page %+v", all)
	}

	b.run(t, "limits", "forget", "shop/alice").want(t, 0, "shop/alice: forgot the announced limit of 100 per window (99 of 100)\n", "")
	if out := b.run(t, "limits", "shop/alice", "-o", "json").ok(t); !strings.Contains(out, `,"announced":[],"concurrency":null,"learned":null,"named":[],"override":null}`) {
		t.Errorf("forgotten: %s", out)
	}
	if out := b.run(t, "breaker", "history", "shop/alice").ok(t); !strings.Contains(out, "CLOSED  CLOSED  limits forgotten by hand") {
		t.Errorf("history:\n%s", out)
	}
	b.run(t, "breaker", "trip", "shop").ok(t)
	b.run(t, "limits", "forget", "shop").want(t, 0,
		"shop: nothing was learned or announced\nshop is OPEN still; close it with: tidegate breaker reset shop\n", "")
}

// Of many keys those that hold calls back are printed, few others, and the number of the rest.
func TestLimitsOfManyKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	br, err := breaker.New(t.Context(), b.server.Client(t), breaker.Options{Destination: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	defer br.Close()
	for i := range 30 {
		key := fmt.Sprintf("k%02d", i)
		permit, err := br.Key(key).Allow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := breaker.Success().WithBudget(hint.Budget{Remaining: 1, Limit: 100, Reset: time.Hour})
		if _, err := permit.Report(t.Context(), told); err != nil {
			t.Fatal(err)
		}
		if i >= 25 {
			if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.server.Client(t), "shop/"+key, breaker.TripOptions{For: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	names := func(args ...string) string {
		var out []string
		for line := range strings.Lines(b.run(t, append([]string{"limits"}, args...)...).ok(t)) {
			name, _, _ := strings.Cut(line, "  ")
			out = append(out, strings.TrimSpace(strings.TrimPrefix(name, "shop/")))
		}
		return strings.Join(out, " ")
	}
	const free = "k00 k01 k02 k03 k04 k05 k06 k07 k08 k09 15 other keys of shop can be called; all: -o json"
	if got, want := names(), "NAME shop k25 k26 k27 k28 k29 "+free; got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if got, want := names("--destination", "shop", "-n", "2"), "NAME shop k25 k26 3 other limited keys; all: -o json"; !strings.HasPrefix(got, "NAME shop k25 k26 ") || !strings.Contains(got, "3 other limited keys; all: -o json") {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	if n := len(decode[ops.Page[ops.Limits]](t, b.run(t, "limits", "-o", "json").ok(t)).Items); n != 31 {
		t.Errorf("%d as JSON", n)
	}
}
