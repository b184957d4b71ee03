package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/presets"
	"github.com/tidegate/tidegate/internal/view/ops"
)

type presetsCmds struct {
	List presetsListCmd `cmd:"" default:"withargs" help:"List the presets."`
	Show presetsShowCmd `cmd:"" help:"Show what is known of an API."`
}

type presetsListCmd struct{ outputFlag }

// presetItem is a preset in the list.
type presetItem struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	URL   string `json:"url"`
	Date  string `json:"date"`
}

// Run lists the presets.
func (c *presetsListCmd) Run(p *Process) error {
	var items []presetItem
	for _, name := range presets.Names() {
		preset, _ := presets.Get(name)
		items = append(items, presetItem{name, preset.Title, preset.Settings["URL"], preset.Date})
	}
	return table[presetItem]{
		head: []string{"NAME", "API", "URL", "READ"},
		row:  func(i presetItem) []string { return []string{i.Name, i.Title, dash(i.URL), i.Date} },
	}.print(p, c.outputFlag, ops.Page[presetItem]{Items: items})
}

type presetsShowCmd struct {
	Name string `arg:"" help:"Name of the preset."`
	outputFlag
}

// Run shows a preset.
func (c *presetsShowCmd) Run(p *Process) error {
	preset, known := presets.Get(strings.ToLower(c.Name))
	if !known {
		hint := "; tidegate presets lists them"
		if near := config.Nearest(c.Name, presets.Names(), 2); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return &notFoundError{"there is no preset " + clip(c.Name, 40) + hint}
	}
	return c.show(p, preset, func(r *rows) { r.addPreset(preset) })
}

func (r *rows) addPreset(preset *presets.Preset) {
	r.add("name", preset.Name)
	r.add("API", preset.Title)
	for _, url := range preset.Source {
		r.add("source", url)
	}
	r.add("read", preset.Date)
	r.add("idempotency", preset.Idempotency)
	r.add("hints", preset.Hints)
	section := func(title string) {
		r.add()
		r.add(title)
	}
	section("Settings:")
	for _, name := range slices.Sorted(maps.Keys(preset.Settings)) {
		r.add("  DESTINATION_<i>_"+name, preset.Settings[name])
	}
	section("Limits:")
	for _, l := range preset.Limits {
		r.add("  "+l.Limit, l.Of)
	}
	section("Answers:")
	for i, rule := range preset.Answers {
		r.add("  "+strconv.Itoa(i+1)+"  when", rule.When)
		for _, part := range [][2]string{
			{"then", rule.Then}, {"wait", rule.Wait}, {"until", rule.Until}, {"scope", rule.Scope}, {"cost", rule.Cost}, {"output", rule.Output}, {"reason", rule.Reason},
		} {
			r.addIf("     "+part[0], part[1])
		}
	}
	if len(preset.Budgets) > 0 {
		section("Budgets:")
	}
	for _, b := range preset.Budgets {
		r.add("  "+b.Name+"  left", b.Left)
		for _, part := range [][2]string{{"resets", b.Resets}, {"limit", b.Limit}, {"scope", b.Scope}, {"when", b.When}} {
			r.addIf("     "+part[0], part[1])
		}
	}
	section("Documented responses:")
	for _, e := range preset.Examples {
		r.add(fmt.Sprintf("  %d  %s", e.Status, e.Name), e.Comes())
	}
	section("To set:")
	for _, line := range preset.Environment {
		r.add("  " + line)
	}
	if len(preset.Notes) > 0 {
		section("Notes:")
	}
	for _, note := range preset.Notes {
		r.add("  " + note)
	}
}
