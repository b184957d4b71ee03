package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// What a job takes of a named limit that can never have it is refused as it is enqueued. A process that enqueues does
// not warn of what only calls need.
func TestJobsAboveANamedLimit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "d.yaml")
	text := "limits: {calls: {rate: '9/1h:5'}, tokens: {rate: '100/1h:100', unit: tokens}}\n" +
		"destinations: {shop: {url: 'https://a.example.com/', limits: [calls, tokens]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"DESTINATIONS_FILE=" + file, "CALLBACK_HOSTS=app.example.com"}
	cfg, warnings, err := config.LoadForAPI(environ)
	if err != nil || strings.Contains(fmt.Sprint(warnings), "CALLBACK_SECRET") {
		t.Fatal(warnings, err)
	}
	check := CheckOf(cfg)
	for field, option := range map[string]jobs.Option{"cost": jobs.Cost(10), "costs": jobs.Costs(map[string]int{"tokens": 101})} {
		spec := jobs.New("shop", 1, option)
		if got := check(spec); len(got) != 1 || got[0].Field != field || !strings.Contains(got[0].Message, "is above the window") {
			t.Errorf("%s: %+v", field, got)
		}
	}
	spec := jobs.New("shop", 1, jobs.Cost(9), jobs.Costs(map[string]int{"tokens": 100}))
	if got := check(spec); len(got) != 0 {
		t.Errorf("what fits: %+v", got)
	}
}

// Each of two limits of a unit is corrected by its own part of the response.
func TestActualsOfAUnit(t *testing.T) {
	t.Parallel()
	_, costs, err := namedLimits(config.LimitUses{
		{Limit: config.Limit{Name: "in", Unit: "tokens"}, Actual: "body.in"}, {Limit: config.Limit{Name: "out", Unit: "tokens"}, Actual: "body.out"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := costs(httpdest.Answered{Job: &jobs.Job{}, Body: []byte(`{"in":3,"out":7}`)}); got[":in"] != 3 || got[":out"] != 7 || len(got) != 2 {
		t.Errorf("costs are %v", got)
	}
}
