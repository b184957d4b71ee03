package answers

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/jobs"
)

// maxBudgets bounds the budgets of a file.
const maxBudgets = 20

// BudgetSpec is a budget as it is written: what an API announces in fields of its own. All but Name and
// Scope are expressions; Limit, Scope and When are optional.
type BudgetSpec struct {
	Name   string `yaml:"name"`
	Left   string `yaml:"left"`
	Resets string `yaml:"resets"`
	Limit  string `yaml:"limit"`
	// Scope is key or destination.
	Scope string `yaml:"scope"`
	When  string `yaml:"when"`

	line int
}

type budget struct {
	name                      string
	when, left, resets, limit *expression.Program
	resetsIn                  time.Duration // a constant in place of resets
	scope                     jobs.Scope
}

// read reads budget n of a file.
func (s *BudgetSpec) read(n int, item *yaml.Node) tokens.Errors {
	s.line = item.Line
	return readFields("budget", n, item, map[string]*string{
		"name": &s.Name, "left": &s.Left, "resets": &s.Resets, "limit": &s.Limit, "scope": &s.Scope, "when": &s.When,
	}, "use name, left, resets, limit, scope and when")
}

var budgetName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// compileBudgets compiles budgets. The error is tokens.Errors.
func compileBudgets(specs []BudgetSpec) (out []budget, problems tokens.Errors) {
	if len(specs) > maxBudgets {
		return nil, tokens.Errors{{What: fmt.Sprintf("holds %d budgets, at most %d", len(specs), maxBudgets), Fix: "take out those that never bind"}}
	}
	known := map[string]bool{}
	for i, s := range specs {
		c := compiler{what: "budget", line: s.line, n: i + 1}
		switch {
		case !budgetName.MatchString(s.Name):
			c.fail("name", fmt.Sprintf("%q is not a name", s.Name), "use up to 32 letters, digits, -, _ and .")
		case known[s.Name]:
			c.fail("name", fmt.Sprintf("%q is the name of another budget", s.Name), "give each its own")
		}
		known[s.Name] = true
		b := budget{name: s.Name, scope: c.scope(s.Scope)}
		for field, source := range map[string]string{"left": s.Left, "resets": s.Resets} {
			if source == "" {
				c.fail(field, "is missing", `write an expression such as headers["x-remaining"]`)
			}
		}
		b.when, b.left, b.limit = c.compile("when", s.When, true), c.compile("left", s.Left, false), c.compile("limit", s.Limit, false)
		if d, ok := hint.Duration(s.Resets); ok {
			b.resetsIn = d
		} else {
			b.resets = c.compile("resets", s.Resets, false)
		}
		out, problems = append(out, b), append(problems, c.problems...)
	}
	return out, problems
}

// announced adds the budgets that a response announces to a decision, without those whose name it has.
func (r *Rules) announced(d *Decided, env map[string]any, now time.Time) {
	for i := range r.budgets {
		b := &r.budgets[i]
		got := jobs.Budget{Name: b.name, Shown: true, Scope: b.scope}
		says := true
		value := func(field string, p *expression.Program, take func(v any) error) {
			if p == nil || !says {
				return
			}
			v, err := p.Eval(env)
			switch {
			case err == nil && (v == nil || v == ""): // the field is not there
				says = field == "limit"
				return
			case err == nil:
				err = take(v)
			}
			if err != nil {
				says = field == "limit"
				d.Failures = append(d.Failures, Failure{Budget: b.name, Field: field, Err: err, of: r.of, source: p.Source()})
			}
		}
		count := func(into *int) func(v any) error {
			return func(v any) error {
				n, err := number(v)
				if err == nil && n < 0 {
					err = errors.New("is negative")
				}
				if err == nil {
					*into = int(min(math.Floor(n), 1<<31))
				}
				return err
			}
		}
		value("when", b.when, func(v any) error { says = v == true; return nil })
		value("left", b.left, count(&got.Remaining))
		got.Reset = b.resetsIn
		value("resets", b.resets, func(v any) (err error) {
			got.Reset, err = ends(v, now, got.Remaining == 0)
			return err
		})
		value("limit", b.limit, count(&got.Limit))
		for _, other := range d.Budgets {
			says = says && other.Name != got.Name
		}
		if says && got.Reset > 0 {
			d.Budgets = append(d.Budgets, got)
		}
	}
}

// ends reads how long a window lasts. If that is over, it is 0, and a second if no call is left.
func ends(v any, now time.Time, usedUp bool) (time.Duration, error) {
	d, err := duration(v, now)
	if err != nil {
		text, _ := v.(string)
		zero, zeroErr := time.ParseDuration(text)
		if _, past := until(v, now.Add(-hint.Longest)); past == nil || zeroErr == nil && zero == 0 {
			d, err = 0, nil
		}
	}
	if err == nil && d == 0 && usedUp {
		d = time.Second
	}
	return d, err
}
