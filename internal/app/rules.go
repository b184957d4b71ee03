package app

import (
	"fmt"
	"log/slog"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/internal/dest/presets"
)

// OpenRules returns the answer rules of a destination: the rules of its file, then the rules of its
// preset; nil if it has none. failed, unless nil, is called for each rule that fails on an answer.
func OpenRules(d config.Destination, failed func(destination string), log *slog.Logger) (*answers.Decider, error) {
	o := answers.Options{File: d.AnswersFile, Logger: log.With("destination", d.Name)}
	if failed != nil {
		o.Failed = func(answers.Failure) { failed(d.Name) }
	}
	if preset, ok := presets.Get(d.Preset); ok && preset.Rules() != nil {
		rules, err := answers.Preset(preset.Name, preset.Rules())
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", preset.Name, err)
		}
		o.Preset = rules
	}
	if o.File == "" && o.Preset == nil {
		return nil, nil
	}
	rules, err := answers.Open(o)
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", d.AnswersFile, err)
	}
	return rules, nil
}
