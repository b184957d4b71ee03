package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/answers"
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
	useFields   = []string{"name", "estimate", "actual"}
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

// limitProblem reports what is wrong with a node of a list of limits.
type limitProblem func(node *yaml.Node, problem, fix string)

// readUses reads the list of limits of a destination, and completes it by what is known of them; nil: that comes later.
func readUses(list *yaml.Node, known []Limit, wrong limitProblem) (out LimitUses) {
	if list.Kind == yaml.AliasNode {
		list = list.Alias
	}
	nodes := list.Content
	if list.Kind == yaml.ScalarNode {
		nodes = []*yaml.Node{list}
	} else if list.Kind != yaml.SequenceNode {
		wrong(list, "is not a list", "write names of limits in brackets, or one a line")
		return nil
	}
	if len(nodes) > mostLimits {
		wrong(list, fmt.Sprintf("names %d limits, which is more than %d", len(nodes), mostLimits), "take some out")
		return nil
	}
	for _, node := range nodes {
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		u, ok := LimitUse{Limit: Limit{Name: node.Value}}, true
		if node.Kind != yaml.ScalarNode {
			u.Name = ""
		}
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			field, value := node.Content[i], node.Content[i+1]
			switch field.Value {
			case "name":
				u.Name = value.Value
			case "estimate":
				u.Estimate = value.Value
			case "actual":
				u.Actual = value.Value
			default:
				fix := "use name, estimate and actual"
				if near := Nearest(field.Value, useFields, 3); near != "" {
					fix = "did you mean " + near + "?"
				}
				wrong(field, quote(field.Value)+" is not a setting of a limit here", fix)
				ok = false
			}
		}
		if u.Name == "" {
			wrong(node, "has no name of a limit", "write a name of the section limits")
			continue
		}
		if slices.ContainsFunc(out, func(other LimitUse) bool { return other.Name == u.Name }) {
			wrong(node, "names "+quote(u.Name)+" twice", "keep one")
			continue
		}
		if _, err := answers.Estimate(u.Estimate); err != nil {
			wrong(node, "the estimate of "+u.Name+" is not a valid expression: "+err.Error(), "use one over key, request, payload and priority, such as payload.max_tokens")
			ok = false
		}
		if _, err := answers.Actual(u.Actual); err != nil {
			wrong(node, "the actual of "+u.Name+" is not a valid expression: "+err.Error(), "use one over body, headers and status, such as body.usage.total_tokens")
			ok = false
		}
		if known != nil {
			ok = u.resolve(known, func(problem, fix string) { wrong(node, problem, fix) }) && ok
		}
		if ok {
			out = append(out, u)
		}
	}
	return out
}

// resolve completes the use by the limit that it names.
func (u *LimitUse) resolve(known []Limit, wrong func(problem, fix string)) bool {
	i := slices.IndexFunc(known, func(l Limit) bool { return l.Name == u.Name })
	if i < 0 {
		names := make([]string, len(known))
		for i, l := range known {
			names[i] = l.Name
		}
		fix := "define it in the section limits of DESTINATIONS_FILE"
		if near := Nearest(u.Name, names, max(2, len(u.Name)/3)); near != "" {
			fix = "did you mean " + near + "?"
		}
		wrong("names limit "+quote(u.Name)+", which is not defined", fix)
		return false
	}
	u.Limit = known[i]
	u.place = place{} // which is no difference
	if u.Unit == "" && (u.Estimate != "" || u.Actual != "") {
		wrong("gives an estimate or actual of "+quote(u.Name)+", whose unit is calls", "set the unit of "+u.Name+", such as unit: tokens, or take them out")
		return false
	}
	return true
}

// readLimitUses reads the list from a variable.
func readLimitUses(text string) (any, error) {
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil || len(root.Content) == 0 {
		return LimitUses{}, &unreadable{problem: "is not a list of limits in YAML"}
	}
	var first error
	uses := readUses(root.Content[0], nil, func(_ *yaml.Node, problem, fix string) {
		if first == nil {
			first = &unreadable{problem: problem, fix: fix}
		}
	})
	return uses, first
}

// checkLimits completes the named limits of a destination.
func (l *loader) checkLimits(d *Destination, prefix string) {
	for i := range d.Limits {
		d.Limits[i].resolve(l.limits, func(problem, fix string) {
			if l.found.ok(prefix + "LIMITS") {
				l.found.fail(prefix+"LIMITS", fix, "%s", problem)
			}
		})
	}
}

// usesText is the list of a destination in the file as its variable has it.
func (f *destinationsFile) usesText(node *yaml.Node, path string) (text string, err error) {
	uses := readUses(node, append([]Limit{}, f.limits...), func(at *yaml.Node, problem, fix string) {
		err = errors.New(problem)
		f.fail(place{path, at.Line, at.Column}, fix, "%s", problem)
	})
	return uses.String(), err
}
