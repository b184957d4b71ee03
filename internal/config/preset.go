package config

import (
	"net/http"
	"strings"

	"github.com/tidegate/tidegate/internal/dest/presets"
)

// applyPresets sets what the presets of the blocks know and nothing in the environment says:
// neither the variable, nor its file, nor the breaker's value for all destinations. It
// returns the presets by block.
func (l *loader) applyPresets(blocks []int) map[int]*presets.Preset {
	applied := map[int]*presets.Preset{}
	for _, index := range blocks {
		name := blockName(index, "PRESET")
		if !l.env.set(name) {
			continue
		}
		given := strings.TrimSpace(l.env.values[name])
		preset, known := presets.Get(strings.ToLower(given))
		if !known {
			fix := byForm["preset"].takes
			if near := Nearest(given, presets.Names(), max(2, len(given)/3)); near != "" {
				fix = "did you mean " + near + "? tidegate presets lists them all"
			}
			l.found.fail(name, fix, "%s is not a preset", quote(given))
			continue
		}
		l.env.values[name] = preset.Name
		applied[index] = preset
		for setting, value := range preset.Settings {
			variable := blockName(index, setting)
			forAll := strings.HasPrefix(setting, "CIRCUIT_BREAKER_") && l.env.set(setting)
			if !l.env.set(variable) && !l.env.set(variable+fileSuffix) && !forAll {
				l.env.values[variable] = value
				l.env.from[variable] = sourcePreset
			}
		}
	}
	return applied
}

// addPresetHeaders adds the headers of a preset that the destination does not set itself.
func addPresetHeaders(d *Destination, preset *presets.Preset) {
	if preset == nil || preset.Settings["HEADERS"] == "" {
		return
	}
	known, err := readHeaders(preset.Settings["HEADERS"])
	if err != nil {
		panic("config: preset " + preset.Name + ": " + err.Error())
	}
	for name, values := range known.(http.Header) {
		if _, set := d.Headers[name]; !set {
			if d.Headers == nil {
				d.Headers = http.Header{}
			}
			d.Headers[name] = values
		}
	}
}
