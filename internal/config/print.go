package config

import (
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// Entry is one effective value, as [Config.Document] shows it.
type Entry struct {
	// Name is the environment variable.
	Name string `json:"name"`
	// Value is as it would be written in the environment; secrets are masked.
	Value string `json:"value"`
	// Source is "default" (for a destination's breaker: the global value), "set",
	// "file" or "preset".
	Source string `json:"source"`
	// Secret is true if Value is masked, as a whole or in parts.
	Secret bool `json:"secret"`
}

// Document is the effective configuration as one JSON document.
type Document struct {
	Items []Entry `json:"items"`
}

// Document returns the effective configuration, secrets masked, for JSON: a
// [Document]. It holds what Print prints.
func (c *Config) Document() any { return Document{Items: c.entries()} }

// Print writes the effective configuration, secrets masked: a line NAME=value
// for each variable, with its source (default, set, file or preset) behind a #.
func (c *Config) Print(w io.Writer) error {
	for _, e := range c.entries() {
		if _, err := fmt.Fprintf(w, "%s=%s  # %s\n", e.Name, e.Value, e.Source); err != nil {
			return fmt.Errorf("config: print: %w", err)
		}
	}
	return nil
}

// IsSet reports whether the environment sets a variable, itself or by its file.
func (c *Config) IsSet(name string) bool {
	if c.env == nil {
		return false
	}
	source := c.env.source(name)
	return source == sourceSet || source == sourceFile
}

// entries lists the effective values in the order of the table.
func (c *Config) entries() []Entry {
	var out []Entry
	add := func(of any, vars iter.Seq[variable]) {
		for v := range vars {
			shown := v.printed(reflect.ValueOf(of).FieldByIndex(v.index))
			out = append(out, Entry{
				Name: v.name, Value: shown, Source: c.env.source(v.name), Secret: v.secret || strings.Contains(shown, Redacted),
			})
		}
	}
	all := table()
	first := slices.IndexFunc(all, func(v variable) bool { return strings.HasPrefix(v.name, blockPrefix) })
	add(*c, slices.Values(all[:first]))
	block := rowsOf(reflect.TypeFor[Destination]())
	for i, d := range c.Destinations {
		add(d, named(blockName(i, ""), block))
	}
	for _, l := range c.limits {
		out = append(out, Entry{Name: l.place.path, Value: l.describe(), Source: fmt.Sprintf("%s:%d", c.env.yaml.name, l.place.line)})
	}
	add(*c, named("", all[first:]))
	return out
}
