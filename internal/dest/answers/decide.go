package answers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/call/expression"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Failure is an expression of a rule or budget that failed on an answer.
type Failure struct {
	// Rule counts from 1.
	Rule int
	// Budget is its name, in place of Rule.
	Budget string
	Field  string
	Err    error

	of, source string // of the rules, and of the expression
}

// String names rule and field.
func (f Failure) String() string { return f.place() + ": " + f.Err.Error() }

func (f Failure) place() string {
	if f.Budget != "" {
		return fmt.Sprintf("%sbudget %s, %s", f.of, f.Budget, f.Field)
	}
	return fmt.Sprintf("%srule %d, %s", f.of, f.Rule, f.Field)
}

// missing is the error of a field of nothing. Other errors of expressions may hold values of the
// answer, which can be secret.
var missing = regexp.MustCompile(`^cannot fetch (\w+) from <nil>$`)

func withoutValues(err error, source string) error {
	e, ok := errors.AsType[*expression.Error](err)
	if !ok || e.Message == expression.NoFields {
		return err
	}
	if m := missing.FindStringSubmatch(e.Message); m != nil && strings.Contains(source, m[1]) {
		return err
	}
	return &expression.Error{Line: e.Line, Column: e.Column, Message: "a value has another type than the expression expects"}
}

// Decided is the decision of a rule.
type Decided struct {
	httpdest.Decision
	// Rule counts from 1; 0 if none matched.
	Rule int
	// Reason is the text of the rule; "" if it has none.
	Reason string
	// Failures are the expressions that failed. A rule whose condition fails does not match;
	// what else fails is left out.
	Failures []Failure
}

// Decide returns the decision of the first rule that matches, and all budgets.
func (r *Rules) Decide(a httpdest.Answered) Decided {
	return decide(a, r)
}

// decide decides by the first of several rules that match. The budgets of the first count, too.
func decide(a httpdest.Answered, all ...*Rules) (d Decided) {
	env, now := environment(a), hint.Answer{Header: a.Header, Received: a.Received}.At()
	for _, r := range all {
		if d.Rule == 0 {
			r.decide(&d, env, now)
		}
		r.announced(&d, env, now)
	}
	return d
}

func (r *Rules) decide(d *Decided, env map[string]any, now time.Time) {
	known := make([]truth, len(r.conjuncts))
	for i := range r.rules {
		matches, err := r.matches(i, env, known)
		if err != nil {
			d.Failures = append(d.Failures, Failure{Rule: i + 1, Field: "when", Err: err, of: r.of, source: r.rules[i].when.Source()})
			continue
		}
		if matches == true {
			d.Rule = i + 1
			d.By = fmt.Sprintf("%srule %d", r.of, d.Rule)
			r.rules[i].decide(d, env, now, r.of)
			return
		}
	}
}

// truth says whether a conjunct is true for an answer.
type truth int8

const (
	unknown truth = iota
	isTrue
	isFalse
)

// matches evaluates the condition of a rule; known are the conjuncts that were evaluated before.
func (r *Rules) matches(rule int, env map[string]any, known []truth) (any, error) {
	when := &r.rules[rule]
	for _, n := range when.conjuncts {
		if known[n] == unknown {
			switch v, err := r.conjuncts[n].Eval(env); {
			case err == nil && v == true:
				known[n] = isTrue
			case err == nil && v == false:
				known[n] = isFalse
			default: // the error has the position in the whole condition
				return when.when.Eval(env)
			}
		}
		if known[n] == isFalse {
			return false, nil
		}
	}
	if when.conjuncts != nil {
		return true, nil
	}
	return when.when.Eval(env)
}

// decide completes the decision of a rule that matches.
func (r *rule) decide(d *Decided, env map[string]any, now time.Time, of string) {
	d.Then, d.Scope, d.Wait = r.then, r.scope, r.waitFor
	value := func(field string, p *expression.Program, take func(v any) error) {
		if p == nil {
			return
		}
		v, err := p.Eval(env)
		if err == nil {
			err = take(v)
		}
		if err != nil {
			d.Failures = append(d.Failures, Failure{Rule: d.Rule, Field: field, Err: err, of: of, source: p.Source()})
		}
	}
	value("wait", r.wait, func(v any) (err error) { d.Wait, err = duration(v, now); return err })
	value("until", r.until, func(v any) (err error) { d.Wait, err = until(v, now); return err })
	value("cost", r.cost, func(v any) error {
		cost, err := number(v)
		if err == nil {
			d.Cost = &cost
		}
		return err
	})
	value("output", r.output, func(v any) (err error) {
		if v == nil {
			return errors.New("there is no such value")
		}
		d.Output, err = json.Marshal(v)
		return err //nolint:wrapcheck // the caller names the field
	})
	reason, err := r.reason.Eval(env)
	if err != nil {
		d.Failures = append(d.Failures, Failure{Rule: d.Rule, Field: "reason", Err: err, of: of})
	}
	d.Reason = reason
	if reason != "" {
		d.By += ": " + reason
	}
}

// environment are the variables of an answer. Headers and body are read when a rule gets to
// them.
func environment(a httpdest.Answered) map[string]any {
	var headers, body any
	return map[string]any{
		"status": a.Status, "attempt": a.Job.Attempt, "key": a.Job.Key,
		"headers": func() any {
			if headers == nil {
				headers = firstValues(a.Header)
			}
			return headers
		},
		"body": func() any {
			if body == nil {
				body = bodyOf(a.Body)
			}
			return body
		},
	}
}

// firstValues are the first values of headers, by their names in lower case.
func firstValues(header http.Header) map[string]string {
	out := make(map[string]string, len(header))
	for name, values := range header {
		if len(values) > 0 {
			out[strings.ToLower(name)] = values[0]
		}
	}
	return out
}

// bodyOf is the value of a JSON body within the bounds of expression.JSON, else its text.
func bodyOf(body []byte) any {
	if v, err := expression.JSON(body); err == nil && v != nil {
		return v
	}
	return string(body)
}

// duration reads a wait: a duration, a number of seconds, or a text as package hint reads it in headers.
func duration(v any, now time.Time) (time.Duration, error) {
	if d, ok := v.(time.Duration); ok {
		return min(max(0, d), hint.Longest), nil
	}
	if s, err := number(v); err == nil && s <= 0 {
		return 0, nil
	}
	return until(v, now)
}

// until reads an instant: a time, or a text or number as package hint reads it in headers.
func until(v any, now time.Time) (time.Duration, error) {
	if t, ok := v.(time.Time); ok {
		v = t.UTC().Format(time.RFC3339Nano) // without the fraction of a second if it has none
	}
	text, err := expression.Text(v)
	if err != nil {
		return 0, fmt.Errorf("is not a time: %w", err)
	}
	d, ok := hint.Read(text, now)
	if !ok {
		return 0, errors.New("is not a time in the future")
	}
	return d, nil
}

// number reads a number, or a text of one.
func number(v any) (float64, error) {
	switch v := v.(type) {
	case int:
		return float64(v), nil
	case float64:
		if v == v && v-v == 0 { // not NaN, not infinite
			return v, nil
		}
	case string:
		var f json.Number
		if err := json.Unmarshal([]byte(strings.TrimSpace(v)), &f); err == nil {
			return f.Float64() //nolint:wrapcheck // the caller words it
		}
	}
	return 0, errors.New("is not a number")
}
