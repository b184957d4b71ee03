package presets_test

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dest/presets"
)

//go:generate go test -run ^TestPages$ -count=1 . -args -update

var update = flag.Bool("update", false, "write docs/apis instead of comparing it")

const docs = "../../../docs/apis/"

// Each preset has all the fields that describe its API, and an example of each outcome.
func TestComplete(t *testing.T) {
	t.Parallel()
	names := presets.Names()
	if len(names) < 10 {
		t.Errorf("%d presets", len(names))
	}
	for _, name := range names {
		p, known := presets.Get(name)
		if !known || p.Name != name || p.Title == "" || p.Enqueue == "" || p.Idempotency == "" || p.Hints == "" || len(p.Limits) == 0 || len(p.Environment) == 0 {
			t.Errorf("%s is not complete: %+v", name, p)
			continue
		}
		if _, err := time.Parse(time.DateOnly, p.Date); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, url := range p.Source {
			if !strings.HasPrefix(url, "https://") {
				t.Errorf("%s: source %q", name, url)
			}
		}
		outcomes, banned := map[string]bool{}, false
		for _, e := range p.Examples {
			outcomes[e.Outcome] = true
			banned = banned || e.Status == 403 && strings.HasPrefix(e.Body, "<html>") && e.Outcome == "retry"
		}
		if !banned {
			t.Errorf("%s has no example of a firewall's ban", name)
		}
		for _, must := range []string{"ok", "limited", "fail", "unauthorized", "retry"} {
			if !outcomes[must] {
				t.Errorf("%s has no example of %s", name, must)
			}
		}
	}
	if _, known := presets.Get("../data/github"); known {
		t.Error("a path is a name")
	}
}

// A window that a preset sets keeps a limit that its page documents: what may leave at once and
// what follows within the time are together no more than that.
func TestPresetRatesKeepDocumentedLimits(t *testing.T) {
	t.Parallel()
	found := 0
	for _, name := range presets.Names() {
		p, _ := presets.Get(name)
		for _, setting := range []string{"RATE", "KEY_RATE"} {
			if p.Settings[setting] == "" {
				continue
			}
			rates, err := breaker.ParseRates(p.Settings[setting])
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rates {
				found++
				most := r.Calls
				if r.Burst > 1 {
					most += r.Burst
				}
				if !slices.ContainsFunc(p.Limits, func(l presets.Limit) bool {
					documented, err := breaker.ParseRate(l.Limit)
					return err == nil && documented.Per == r.Per && most <= documented.Calls
				}) {
					t.Errorf("%s: no documented limit is kept by %s=%s", name, setting, r)
				}
			}
		}
	}
	if found < 5 {
		t.Errorf("%d windows", found)
	}
}

// docs/apis is what the data says.
func TestPages(t *testing.T) {
	t.Parallel()
	pages := map[string][]byte{}
	var all []*presets.Preset
	for _, name := range presets.Names() {
		p, _ := presets.Get(name)
		all = append(all, p)
		pages[name+".md"] = render(t, "page.md.tmpl", p)
	}
	pages["README.md"] = render(t, "index.md.tmpl", all)
	for file, want := range pages {
		if *update {
			if err := os.WriteFile(docs+file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(docs + file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("docs/apis/%s is stale; run: go generate ./internal/dest/presets\n%s", file, diff)
		}
	}
	files, err := os.ReadDir(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if pages[f.Name()] == nil {
			t.Errorf("docs/apis/%s is of no preset", f.Name())
		}
	}
}

func render(t *testing.T, file string, data any) []byte {
	t.Helper()
	tmpl, err := template.ParseFiles("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := tmpl.Execute(&out, data); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
