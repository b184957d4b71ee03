// Package answers reads and evaluates answer rules: what an answer of an API means, where its
// status alone does not say it. docs/answers.md is their reference.
//
//	rules:
//	  - when: status == 200 && body.ok == false && body.error == "ratelimited"
//	    then: limited
//	    wait: headers["retry-after"]
//	    reason: "Slack: {{ body.error }}"
package answers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/expression"
	"github.com/tidegate/tidegate/internal/tokens"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// Bounds of a file.
const (
	maxFile  = 1 << 20 // bytes
	maxRules = 200
)

// vars are the variables of a rule.
var vars = map[string]expression.Type{
	"status": expression.Int, "headers": expression.Lazy, "body": expression.Lazy,
	"attempt": expression.Int, "key": expression.String,
}

// condition are the options of when.
var condition = expression.Options{Vars: vars, Bool: true}

// Spec is a rule as it is written. All but When and Then are optional; all but Then, Scope and
// Reason are expressions.
type Spec struct {
	When  string `yaml:"when"`
	Then  string `yaml:"then"`
	Until string `yaml:"until"`
	Wait  string `yaml:"wait"`
	// Scope is key or destination.
	Scope string `yaml:"scope"`
	Cost  string `yaml:"cost"`
	// Reason is a text with expressions in {{ }}.
	Reason string `yaml:"reason"`
	Output string `yaml:"output"`

	line int // in the file; 0: unknown
}

// Rules are compiled rules. The first one that matches decides.
type Rules struct {
	rules []rule
	of    string // comes before the number of a rule: "preset slack, " or ""
	// conjuncts are the operands of && in conditions, each once: rules often begin alike.
	conjuncts []*expression.Program
}

type rule struct {
	then         publisher.Then
	when         *expression.Program
	conjuncts    []int // of when; nil: it is evaluated as a whole
	until, wait  *expression.Program
	waitFor      time.Duration // a constant in place of wait
	scope        jobs.Scope
	cost, output *expression.Program
	reason       *expression.Template
}

// Len returns the number of rules.
func (r *Rules) Len() int { return len(r.rules) }

const shape = "write a list of rules: - when: status == 429, then: limited on the next line; see docs/answers.md"

// Parse reads rules from YAML or JSON: a list, or an object with the list as rules. The error
// is tokens.Errors and names rule, field and column.
func Parse(content []byte) (*Rules, error) {
	specs, err := read(content)
	if err != nil {
		return nil, err
	}
	return compile(specs)
}

// Preset is Parse for the rules of a preset, which their decisions name.
func Preset(name string, content []byte) (*Rules, error) {
	r, err := Parse(content)
	if err != nil {
		return nil, err
	}
	r.of = "preset " + name + ", "
	return r, nil
}

// read reads the rules without compiling their expressions.
func read(content []byte) ([]Spec, error) {
	wrong := func(what string) error { return tokens.Errors{{What: what, Fix: shape}} }
	if len(content) > maxFile {
		return nil, wrong(fmt.Sprintf("is larger than %d MiB", maxFile>>20))
	}
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return nil, wrong("is empty")
	} else if err != nil {
		return nil, wrong("is neither YAML nor JSON: " + strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, wrong("holds more than one YAML document")
	}
	list := root.Content[0]
	if list.Kind == yaml.MappingNode && len(list.Content) == 2 && list.Content[0].Value == "rules" {
		list = list.Content[1]
	}
	if list.Kind != yaml.SequenceNode {
		return nil, wrong("is not a list of rules")
	}
	var specs []Spec
	var problems tokens.Errors
	for i, item := range list.Content {
		spec := Spec{line: item.Line}
		problems = append(problems, spec.read(i+1, item)...)
		specs = append(specs, spec)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return specs, nil
}

// fields are the names of a rule's fields, with where each goes.
func (s *Spec) fields() map[string]*string {
	return map[string]*string{
		"when": &s.When, "then": &s.Then, "until": &s.Until, "wait": &s.Wait, "scope": &s.Scope,
		"cost": &s.Cost, "reason": &s.Reason, "output": &s.Output,
	}
}

// read reads rule n of a file.
func (s *Spec) read(n int, item *yaml.Node) (problems tokens.Errors) {
	if item.Kind != yaml.MappingNode {
		return tokens.Errors{{What: fmt.Sprintf("line %d: rule %d is not an object with when and then", item.Line, n), Fix: shape}}
	}
	fields := s.fields()
	for i := 0; i+1 < len(item.Content); i += 2 {
		name, value := item.Content[i], item.Content[i+1]
		place := fmt.Sprintf("line %d: rule %d", name.Line, n)
		switch into, known := fields[name.Value]; {
		case !known:
			problems = append(problems, tokens.Problem{What: fmt.Sprintf("%s: %q is not a field of a rule", place, name.Value), Fix: "use when, then, until, wait, scope, cost, reason and output"})
		case into == nil:
			problems = append(problems, tokens.Problem{What: fmt.Sprintf("%s, %s: is given twice", place, name.Value), Fix: "keep one"})
		case value.Kind != yaml.ScalarNode:
			problems = append(problems, tokens.Problem{What: place + ", " + name.Value + ": is not a text", Fix: "write the expression as one text, in quotes if it holds {, [ or #"})
		default:
			*into = value.Value
			fields[name.Value] = nil
		}
	}
	return problems
}

// compile compiles rules. The error is tokens.Errors.
func compile(specs []Spec) (*Rules, error) {
	if len(specs) > maxRules {
		return nil, tokens.Errors{{What: fmt.Sprintf("holds %d rules, at most %d", len(specs), maxRules), Fix: "join rules with ||"}}
	}
	out := &Rules{}
	var problems tokens.Errors
	for i, s := range specs {
		c := compiler{spec: s, n: i + 1}
		out.rules = append(out.rules, c.rule())
		problems = append(problems, c.problems...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	out.split(specs)
	return out, nil
}

// split splits the conditions of valid rules into their conjuncts.
func (r *Rules) split(specs []Spec) {
	known := map[string]int{}
	for i, s := range specs {
		texts := expression.Conjuncts(s.When, condition)
		of := make([]int, 0, len(texts))
		for _, text := range texts {
			n, seen := known[text]
			if !seen {
				p, err := expression.Compile(text, condition)
				if err != nil {
					break
				}
				n = len(r.conjuncts)
				known[text], r.conjuncts = n, append(r.conjuncts, p)
			}
			of = append(of, n)
		}
		if len(of) == len(texts) {
			r.rules[i].conjuncts = of
		}
	}
}

// compiler compiles rule n.
type compiler struct {
	spec     Spec
	n        int
	problems tokens.Errors
}

func (c *compiler) fail(field, what, fix string) {
	place := fmt.Sprintf("rule %d, %s", c.n, field)
	if c.spec.line > 0 {
		place = fmt.Sprintf("line %d: %s", c.spec.line, place)
	}
	c.problems = append(c.problems, tokens.Problem{What: place + ": " + what, Fix: fix})
}

// outcomes are the words of then.
var outcomes = []publisher.Then{publisher.ThenOK, publisher.ThenLimited, publisher.ThenRetry, publisher.ThenFail, publisher.ThenReschedule, publisher.ThenUnauthorized}

func (c *compiler) rule() rule {
	s := c.spec
	r := rule{then: publisher.Then(s.Then)}
	if !slices.Contains(outcomes, r.then) {
		words := make([]string, len(outcomes))
		for i, o := range outcomes {
			words[i] = string(o)
		}
		c.fail("then", fmt.Sprintf("%q is not an outcome", s.Then), "use one of "+strings.Join(words, ", "))
	}
	if s.When == "" {
		c.fail("when", "is missing", "write the condition; true matches every answer")
	} else {
		r.when = c.compile("when", s.When, true)
	}
	waits := r.then == publisher.ThenLimited || r.then == publisher.ThenReschedule
	for field, text := range map[string]string{"until": s.Until, "wait": s.Wait} {
		if text != "" && !waits && len(c.problems) == 0 {
			c.fail(field, "has no effect with then: "+s.Then, "take it out, or use then: limited or reschedule")
		}
	}
	if s.Until != "" && s.Wait != "" {
		c.fail("until", "is set together with wait", "use one of the two")
	}
	r.until = c.compile("until", s.Until, false)
	if d, ok := hint.Duration(s.Wait); ok {
		r.waitFor = d
	} else {
		r.wait = c.compile("wait", s.Wait, false)
	}
	r.cost, r.output = c.compile("cost", s.Cost, false), c.compile("output", s.Output, false)
	switch s.Scope {
	case "":
	case "key":
		r.scope = jobs.ScopeUser
	case "destination":
		r.scope = jobs.ScopeGlobal
	default:
		c.fail("scope", fmt.Sprintf("%q is not a scope", s.Scope), "use key or destination")
	}
	if s.Scope != "" && r.then != publisher.ThenLimited && r.then != publisher.ThenUnauthorized && len(c.problems) == 0 {
		c.fail("scope", "has no effect with then: "+s.Then, "take it out, or use then: limited or unauthorized")
	}
	if s.Output != "" && r.then != publisher.ThenOK && len(c.problems) == 0 {
		c.fail("output", "has no effect with then: "+s.Then, "take it out, or use then: ok")
	}
	var err error
	if r.reason, err = expression.CompileTemplate(s.Reason, expression.Options{Vars: vars}); err != nil {
		c.fail("reason", err.Error(), "see docs/answers.md")
	}
	return r
}

// compile compiles the expression of a field; nil if it is empty.
func (c *compiler) compile(field, source string, isBool bool) *expression.Program {
	if source == "" {
		return nil
	}
	p, err := expression.Compile(source, expression.Options{Vars: vars, Bool: isBool})
	if err != nil {
		c.fail(field, err.Error(), "see docs/answers.md for variables and functions")
	}
	return p
}
