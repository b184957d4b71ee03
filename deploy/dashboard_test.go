package deploy_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dashboardFile = "grafana/tidegate.json"

type panel struct {
	ID          int
	Type, Title string
	Description string
	Datasource  struct{ Type, UID string }
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		Expr       string
		Datasource struct{ Type, UID string }
	}
}

type dashboard struct {
	UID        string
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct {
		List []struct{ Expr string }
	}
}

// loadDashboard reads the dashboard. The names of Grafana's fields are in mixed case, those of
// a YAML decoder in lower case.
func loadDashboard(t *testing.T) dashboard {
	t.Helper()
	var raw map[string]any
	parse(t, dashboardFile, &raw, true) // Also finds keys that are there twice.
	var d dashboard
	decodeJSON(t, dashboardFile, &d)
	return d
}

func TestDashboardAsksForWhatIsThere(t *testing.T) {
	t.Parallel()
	d := loadDashboard(t)
	shown := make(map[string]bool)
	queries := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			queries++
			// The dashboard also works where the recording rules are not loaded.
			checkQuery(t, dashboardFile+": "+p.Title, q.Expr, nil)
			for _, name := range metricName.FindAllString(q.Expr, -1) {
				shown[histogramOf.ReplaceAllString(name, "")] = true
				shown[name] = true
			}
		}
	}
	if queries < 40 {
		t.Errorf("%d queries, want 40 or more", queries)
	}
	for name := range loadMetrics(t) {
		if !shown[name] {
			t.Errorf("%s: no panel shows %s", dashboardFile, name)
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			checkQuery(t, dashboardFile+": annotations", a.Expr, nil)
		}
	}
}

func TestDashboardCanBeProvisioned(t *testing.T) {
	t.Parallel()
	d := loadDashboard(t)
	if d.UID != "tidegate" {
		t.Errorf("uid is %q, want tidegate", d.UID)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			checkQuery(t, dashboardFile+": variable "+v.Name, v.Definition, nil)
		}
	}
	if want := []string{"datasource", "namespace", "job", "destination"}; !slices.Equal(variables, want) {
		t.Errorf("variables are %q, want %q", variables, want)
	}
	used := regexp.MustCompile(`\$\{?([a-z_]+)`)
	current := []string{"row", "stat", "timeseries", "state-timeline", "table"}
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		if !slices.Contains(current, p.Type) {
			t.Errorf("%s: panel of type %q, which Grafana may not have any more", p.Title, p.Type)
		}
		g := p.GridPos
		if g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: does not fit into 24 columns", p.Title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%s overlaps %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || p.FieldConfig.Defaults.Unit == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: wants the datasource variable, a unit, a description and a query", p.Title)
		}
		for _, q := range p.Targets {
			if q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: a query of the datasource %q", p.Title, q.Datasource.UID)
			}
			for _, m := range used.FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(variables, m[1]) && !strings.HasPrefix(m[1], "__") {
					t.Errorf("%s: there is no variable $%s", p.Title, m[1])
				}
			}
		}
	}
}
