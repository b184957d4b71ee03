package config

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/redisconn"
	"github.com/tidegate/tidegate/internal/secret"
)

// Entry is one effective value, as [Config.Document] shows it.
type Entry struct {
	// Name is the environment variable.
	Name string `json:"name"`
	// Value is as it would be written in the environment; secrets are masked.
	Value string `json:"value"`
	// Source is "default" (for a destination's breaker: the global value), "set"
	// or "file".
	Source string `json:"source"`
	// Secret tells that Value is masked, as a whole or in parts.
	Secret bool `json:"secret"`
}

// Document is the effective configuration as one JSON document.
type Document struct {
	Items []Entry `json:"items"`
}

// Document returns the effective configuration, secrets masked, for JSON: a
// [Document]. It holds what Print prints.
func (c *Config) Document() any { return Document{Items: slices.Clone(c.entries)} }

// Print writes the effective configuration, secrets masked: a line NAME=value
// for each variable, with its source (default, set or file) behind a #.
func (c *Config) Print(w io.Writer) error {
	for _, e := range c.entries {
		if _, err := fmt.Fprintf(w, "%s=%s  # %s\n", e.Name, e.Value, e.Source); err != nil {
			return fmt.Errorf("config: print: %w", err)
		}
	}
	return nil
}

// IsSet reports whether the environment sets a variable, itself or by its file.
func (c *Config) IsSet(name string) bool {
	return slices.ContainsFunc(c.entries, func(e Entry) bool { return e.Name == name && e.Source != sourceDefault })
}

// entries lists the effective values in the order of the table.
func (l *loader) entries(vars variables, destinations []destinationVars) []Entry {
	var out []Entry
	add := func(group any, prefix string) {
		value := reflect.ValueOf(group)
		for _, v := range groupRows(value.Type(), prefix) {
			shown := printed(value.FieldByName(v.field).Interface())
			out = append(out, Entry{
				Name:   v.name,
				Value:  shown,
				Source: l.env.source(v.name),
				Secret: v.secret || strings.Contains(shown, Redacted),
			})
		}
	}
	add(vars.Redis, "")
	for i, d := range destinations {
		prefix := blockName(i, "")
		d.Burst = calls(d.rate().Burst)
		add(d, prefix)
		d.Breaker.ProbeTimeout = millis(d.Breaker.effective(d.Timeout).ProbeTimeout.Milliseconds())
		add(d.Breaker, prefix+"CIRCUIT_BREAKER_")
	}
	add(vars.Breaker, "CIRCUIT_BREAKER_")
	add(vars.Retry, "RETRY_")
	add(vars.Jobs, "")
	add(vars.Worker, "")
	add(vars.Log, "LOG_")
	add(vars.Alerts, "")
	add(vars.API, "")
	for i := range out {
		if out[i].Name == "REDIS_URL" {
			out[i].Value = redisconn.Redact(vars.Redis.URL.Reveal())
		}
	}
	return out
}

// printed writes a value as it is written in the environment, secrets masked.
func printed(value any) string {
	switch x := value.(type) {
	case time.Duration:
		return FormatDuration(x)
	case offDuration:
		if x == 0 {
			return off
		}
		return FormatDuration(time.Duration(x))
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	case millis:
		if x == 0 {
			return "" // only a probe timeout that is not set
		}
		return strconv.FormatInt(int64(x), 10)
	case calls:
		if x == 0 {
			return ""
		}
		return strconv.Itoa(int(x))
	case hintList:
		if len(x) == 0 {
			return noHints
		}
		return strings.Join(x, ",")
	case urlText:
		return secret.MaskURL(string(x))
	case statusList:
		parts := make([]string, len(x))
		for i, status := range x {
			parts[i] = strconv.Itoa(status)
		}
		return strings.Join(parts, ",")
	case headerList:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(x)) {
			for _, v := range http.Header(x)[name] {
				parts = append(parts, name+":"+secret.MaskHeader(name, v))
			}
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(value)
}
