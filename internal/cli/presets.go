package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/presets"
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
	items := []presetItem{}
	for _, name := range presets.Names() {
		preset, _ := presets.Get(name)
		items = append(items, presetItem{name, preset.Title, preset.Settings["URL"], preset.Date})
	}
	return c.show(p, page[presetItem]{Items: items}, func(r *rows) {
		r.add("NAME", "API", "URL", "READ")
		for _, item := range items {
			r.add(item.Name, item.Title, item.URL, item.Date)
		}
	})
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
	return c.show(p, preset, func(r *rows) { showPreset(r, preset) })
}

func showPreset(r *rows, preset *presets.Preset) {
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
		r.add("     then", rule.Then)
		r.addIf("     wait", rule.Wait)
		r.addIf("     until", rule.Until)
		r.addIf("     scope", rule.Scope)
		r.addIf("     cost", rule.Cost)
		r.addIf("     output", rule.Output)
		r.addIf("     reason", rule.Reason)
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
