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
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
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
	// Within, of accepted, is a duration as Wait is.
	Within string `yaml:"within"`
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
	budgets   []budget
}

type rule struct {
	then         httpdest.Then
	when         *expression.Program
	conjuncts    []int // of when; nil: it is evaluated as a whole
	until, wait  *expression.Program
	waitFor      time.Duration // a constant in place of wait
	scope        jobs.Scope
	cost, output *expression.Program
	reason       *expression.Template
}

// Len returns the number of rules and budgets.
func (r *Rules) Len() int { return len(r.rules) + len(r.budgets) }

const shape = "write a list of rules: - when: status == 429, then: limited on the next line; see docs/answers.md"

// Parse reads rules from YAML or JSON: a list, or an object with the list as rules, and one of budgets. The
// error is tokens.Errors and names rule, field and column.
func Parse(content []byte) (*Rules, error) {
	specs, budgets, err := read(content)
	if err != nil {
		return nil, err
	}
	return compile(specs, budgets)
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

// read reads the rules and budgets without compiling their expressions.
func read(content []byte) (specs []Spec, budgets []BudgetSpec, err error) {
	wrong := func(what string) ([]Spec, []BudgetSpec, error) {
		return nil, nil, tokens.Errors{{What: what, Fix: shape}}
	}
	if len(content) > maxFile {
		return wrong(fmt.Sprintf("is larger than %d MiB", maxFile>>20))
	}
	if err := text.CheckYAML(content); err != nil {
		return wrong(err.Error())
	}
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&root); errors.Is(err, io.EOF) {
		return wrong("is empty")
	} else if err != nil {
		return wrong("is neither YAML nor JSON: " + strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return wrong("holds more than one YAML document")
	}
	lists := map[string]*yaml.Node{"rules": root.Content[0]}
	if top := root.Content[0]; top.Kind == yaml.MappingNode {
		lists = map[string]*yaml.Node{}
		for i := 0; i+1 < len(top.Content); i += 2 {
			name := top.Content[i]
			if lists[name.Value] != nil || name.Value != "rules" && name.Value != "budgets" {
				return wrong(fmt.Sprintf("line %d: %s is not a list of rules or budgets, or is given twice", name.Line, text.Quote(name.Value, 60)))
			}
			lists[name.Value] = top.Content[i+1]
		}
	}
	var problems tokens.Errors
	items := func(name string, read func(n int, item *yaml.Node) tokens.Errors) {
		switch list := lists[name]; {
		case list == nil:
		case list.Kind != yaml.SequenceNode:
			problems = append(problems, tokens.Problem{What: "is not a list of " + name, Fix: shape})
		default:
			for i, item := range list.Content {
				problems = append(problems, read(i+1, item)...)
			}
		}
	}
	items("rules", func(n int, item *yaml.Node) tokens.Errors {
		spec := Spec{line: item.Line}
		defer func() { specs = append(specs, spec) }()
		return spec.read(n, item)
	})
	items("budgets", func(n int, item *yaml.Node) tokens.Errors {
		var spec BudgetSpec
		defer func() { budgets = append(budgets, spec) }()
		return spec.read(n, item)
	})
	if len(problems) > 0 {
		return nil, nil, problems
	}
	return specs, budgets, nil
}

// fields are the names of a rule's fields, with where each goes.
func (s *Spec) fields() map[string]*string {
	return map[string]*string{
		"when": &s.When, "then": &s.Then, "until": &s.Until, "wait": &s.Wait, "within": &s.Within, "scope": &s.Scope,
		"cost": &s.Cost, "reason": &s.Reason, "output": &s.Output,
	}
}

// read reads rule n of a file.
func (s *Spec) read(n int, item *yaml.Node) tokens.Errors {
	if item.Kind != yaml.MappingNode {
		return tokens.Errors{{What: fmt.Sprintf("line %d: rule %d is not an object with when and then", item.Line, n), Fix: shape}}
	}
	return readFields("rule", n, item, s.fields(), "use when, then, until, wait, within, scope, cost, reason and output")
}

// readFields reads the fields of rule or budget n.
func readFields(what string, n int, item *yaml.Node, fields map[string]*string, use string) (problems tokens.Errors) {
	if item.Kind != yaml.MappingNode {
		return tokens.Errors{{What: fmt.Sprintf("line %d: %s %d is not an object", item.Line, what, n), Fix: use}}
	}
	for i := 0; i+1 < len(item.Content); i += 2 {
		name, value := item.Content[i], item.Content[i+1]
		place := fmt.Sprintf("line %d: %s %d", name.Line, what, n)
		switch into, known := fields[name.Value]; {
		case !known:
			problems = append(problems, tokens.Problem{What: fmt.Sprintf("%s: %s is not a field of a %s", place, text.Quote(name.Value, 60), what), Fix: use})
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

// compile compiles rules and budgets. The error is tokens.Errors.
func compile(specs []Spec, budgets []BudgetSpec) (*Rules, error) {
	if len(specs) > maxRules {
		return nil, tokens.Errors{{What: fmt.Sprintf("holds %d rules, at most %d", len(specs), maxRules), Fix: "join rules with ||"}}
	}
	out := &Rules{}
	var problems tokens.Errors
	out.budgets, problems = compileBudgets(budgets)
	for i, s := range specs {
		c := compiler{what: "rule", line: s.line, spec: s, n: i + 1}
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

// compiler compiles rule or budget n.
type compiler struct {
	what     string
	line     int
	spec     Spec
	n        int
	problems tokens.Errors
}

func (c *compiler) fail(field, what, fix string) {
	place := fmt.Sprintf("%s %d, %s", c.what, c.n, field)
	if c.line > 0 {
		place = fmt.Sprintf("line %d: %s", c.line, place)
	}
	c.problems = append(c.problems, tokens.Problem{What: place + ": " + what, Fix: fix})
}

// outcomes are the words of then.
var outcomes = []httpdest.Then{httpdest.ThenOK, httpdest.ThenLimited, httpdest.ThenRetry, httpdest.ThenFail, httpdest.ThenReschedule, httpdest.ThenUnauthorized, httpdest.ThenAccepted}

func (c *compiler) rule() rule {
	s := c.spec
	r := rule{then: httpdest.Then(s.Then)}
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
	waits := r.then == httpdest.ThenLimited || r.then == httpdest.ThenReschedule
	for field, text := range map[string]string{"until": s.Until, "wait": s.Wait} {
		if text != "" && !waits && len(c.problems) == 0 {
			c.fail(field, "has no effect with then: "+s.Then, "take it out, or use then: limited or reschedule")
		}
	}
	if r.then == httpdest.ThenAccepted {
		s.Wait = s.Within
	} else if s.Within != "" && len(c.problems) == 0 {
		c.fail("within", "has no effect with then: "+s.Then, "take it out, or use then: accepted")
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
	r.scope = c.scope(s.Scope)
	if s.Scope != "" && r.then != httpdest.ThenLimited && r.then != httpdest.ThenUnauthorized && len(c.problems) == 0 {
		c.fail("scope", "has no effect with then: "+s.Then, "take it out, or use then: limited or unauthorized")
	}
	if s.Output != "" && r.then != httpdest.ThenOK && len(c.problems) == 0 {
		c.fail("output", "has no effect with then: "+s.Then, "take it out, or use then: ok")
	}
	var err error
	if r.reason, err = expression.CompileTemplate(s.Reason, expression.Options{Vars: vars}); err != nil {
		c.fail("reason", err.Error(), "see docs/answers.md")
	}
	return r
}

func (c *compiler) scope(text string) jobs.Scope {
	switch text {
	case "":
	case "key":
		return jobs.ScopeUser
	case "destination":
		return jobs.ScopeGlobal
	default:
		c.fail("scope", fmt.Sprintf("%q is not a scope", text), "use key or destination")
	}
	return ""
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
