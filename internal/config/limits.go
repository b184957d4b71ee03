package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dest/answers"
)

// Limit is a limit that destinations share by its name, of the section limits of the destinations file.
type Limit struct {
	Name        string
	Rate        breaker.Rates
	Concurrency int
	Unit        string // "" is calls
	Key         string // expression over a job; "": there is one budget
	// OperatorRate says that Rate is an operator's, in place of the configured one.
	OperatorRate bool

	place place
}

// LimitUse is how a destination draws on a named limit.
type LimitUse struct {
	Limit
	// Estimate is an expression over a job, Actual one over a response; "" for none.
	Estimate, Actual string
}

// LimitUses are the named limits of a destination.
type LimitUses []LimitUse

// mostLimits is how many named limits a destination may draw on.
const mostLimits = 8

// calls is the unit of limits that count calls.
const calls = "calls"

var (
	limitName   = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	limitFields = []string{"rate", "concurrency", "unit", "key"}
)

// String is the list in YAML, as the file has it.
func (u LimitUses) String() string {
	node := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, l := range u {
		one := scalar(l.Name)
		if l.Estimate != "" || l.Actual != "" {
			one = flow("name", l.Name, "estimate", l.Estimate, "actual", l.Actual)
		}
		node.Content = append(node.Content, one)
	}
	text, _ := yaml.Marshal(node)
	return strings.TrimSpace(string(text))
}

// node is the limit as the file has it.
func (l Limit) node() *yaml.Node {
	concurrency := ""
	if l.Concurrency > 0 {
		concurrency = strconv.Itoa(l.Concurrency)
	}
	return flow("rate", l.Rate.String(), "concurrency", concurrency, "unit", l.Unit, "key", l.Key)
}

// describe is that in one line.
func (l Limit) describe() string {
	text, _ := yaml.Marshal(l.node())
	return strings.TrimSpace(string(text))
}

// flow is a mapping in braces of names and values, without values that are "".
func flow(pairs ...string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for pair := range slices.Chunk(pairs, 2) {
		if name, value := pair[0], pair[len(pair)-1]; value != "" {
			node.Content = append(node.Content, scalar(name), scalar(value))
		}
	}
	return node
}

// readLimits reads the section limits.
func (f *destinationsFile) readLimits(node *yaml.Node) (out []Limit) {
	for key, value := range f.mapping(node, "limits") {
		l := Limit{Name: key.Value, place: place{"limits." + key.Value, key.Line, key.Column}}
		if !limitName.MatchString(l.Name) {
			f.fail(l.place, "use 1 to 63 of a-z, 0-9 and '-', not starting with '-'", "is not a name of a limit")
			continue
		}
		given := map[string]bool{}
		for key, value := range f.mapping(value, l.place.path) {
			at := place{l.place.path + "." + key.Value, key.Line, key.Column}
			if !slices.Contains(limitFields, key.Value) {
				f.unknown(key, at.path, limitFields)
				continue
			}
			given[key.Value] = true
			text, problem := valueOf(value, nil)
			if problem == "" {
				problem = l.set(key.Value, text)
			}
			if problem != "" {
				f.fail(at, "see docs/limits.md", "%s", problem)
			}
		}
		if !given["rate"] && !given["concurrency"] {
			f.fail(l.place, "give it a rate, such as 500/1m, or a concurrency", "limits nothing")
		}
		out = append(out, l)
	}
	return out
}

// set sets a field of a limit.
func (l *Limit) set(name, value string) (problem string) {
	var err error
	switch name {
	case "rate":
		l.Rate, err = breaker.ParseRates(value)
	case "concurrency":
		if l.Concurrency, err = strconv.Atoi(value); err != nil || l.Concurrency < 1 {
			return quote(value) + " is not a whole number, 1 or more"
		}
	case "unit":
		if !limitName.MatchString(value) {
			return quote(value) + " is not a unit: use a word such as tokens"
		}
		if l.Unit = value; value == calls {
			l.Unit = ""
		}
	case "key":
		_, err = answers.KeyBy(value)
		l.Key = value
	}
	if err != nil {
		return strings.TrimPrefix(err.Error(), "breaker: ")
	}
	return ""
}

// readLimitUses reads the list of limits of a destination, in YAML.
func readLimitUses(text string) (any, error) {
	var list any
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		return LimitUses{}, &unreadable{problem: "is not a list of limits in YAML"}
	}
	items, ok := list.([]any)
	if name, alone := list.(string); alone {
		items, ok = []any{name}, true
	}
	if !ok {
		return LimitUses{}, &unreadable{problem: "is not a list", fix: "write names of limits in brackets, or one a line"}
	}
	if len(items) > mostLimits {
		return LimitUses{}, &unreadable{problem: fmt.Sprintf("names %d limits, which is more than %d", len(items), mostLimits), fix: "take some out"}
	}
	uses := LimitUses{}
	for _, item := range items {
		u, err := readLimitUse(item)
		if err == nil && slices.ContainsFunc(uses, func(other LimitUse) bool { return other.Name == u.Name }) {
			err = &unreadable{problem: "names " + quote(u.Name) + " twice", fix: "keep one"}
		}
		if err != nil {
			return LimitUses{}, err
		}
		uses = append(uses, u)
	}
	return uses, nil
}

// readLimitUse reads a name, or a mapping with one.
func readLimitUse(item any) (u LimitUse, err error) {
	fields, ok := item.(map[string]any)
	if name, alone := item.(string); alone {
		fields, ok = map[string]any{"name": name}, true
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		into := map[string]*string{"name": &u.Name, "estimate": &u.Estimate, "actual": &u.Actual}[field]
		if into == nil {
			fix := "use name, estimate and actual"
			if near := Nearest(field, []string{"name", "estimate", "actual"}, 3); near != "" {
				fix = "did you mean " + near + "?"
			}
			return u, &unreadable{problem: quote(field) + " is not a setting of a limit here", fix: fix}
		}
		switch value := fields[field].(type) {
		case string:
			*into = value
		case int:
			*into = strconv.Itoa(value)
		default:
			return u, &unreadable{problem: "the " + field + " of a limit is not a text", fix: "write an expression in quotes"}
		}
	}
	if !ok || u.Name == "" {
		return u, &unreadable{problem: "an item has no name of a limit", fix: "write a name of the section limits"}
	}
	if _, err := answers.Estimate(u.Estimate); err != nil {
		return u, &unreadable{problem: "the estimate of " + u.Name + " is not a valid expression: " + err.Error(), fix: "use one over key, request, payload and priority, such as payload.max_tokens"}
	}
	if _, err := answers.Actual(u.Actual); err != nil {
		return u, &unreadable{problem: "the actual of " + u.Name + " is not a valid expression: " + err.Error(), fix: "use one over body, headers and status, such as body.usage.total_tokens"}
	}
	return u, nil
}

// checkLimits completes the named limits of a destination by the section limits of the file.
func (l *loader) checkLimits(d *Destination, prefix string) {
	for i := range d.Limits {
		u := &d.Limits[i]
		names := make([]string, len(l.limits))
		for i, known := range l.limits {
			names[i] = known.Name
		}
		at := slices.Index(names, u.Name)
		if at < 0 {
			fix := "define it in the section limits of DESTINATIONS_FILE"
			if near := Nearest(u.Name, names, max(2, len(u.Name)/3)); near != "" {
				fix = "did you mean " + near + "?"
			}
			l.found.fail(prefix+"LIMITS", fix, "names limit %s, which is not defined", quote(u.Name))
			return
		}
		u.Limit = l.limits[at]
		u.place = place{} // which is no difference
		if u.Unit == "" && (u.Estimate != "" || u.Actual != "") {
			l.found.fail(prefix+"LIMITS", "set the unit of "+u.Name+", such as unit: tokens, or take them out",
				"gives an estimate or actual of %s, whose unit is calls", quote(u.Name))
			return
		}
	}
}

// inOneLine writes a node as a variable has it.
func inOneLine(node *yaml.Node) (text, problem string) {
	var v any
	err := node.Decode(&v) // which follows aliases
	var out []byte
	if err == nil {
		out, err = json.Marshal(v)
	}
	switch {
	case err != nil:
		return "", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: unmarshal errors:\n  "), "\n ", ";")
	case v == nil:
		return "", "has no value"
	}
	return string(out), ""
}
