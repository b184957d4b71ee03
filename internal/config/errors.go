package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ExitCode is the exit status of a process whose configuration is wrong
// (EX_CONFIG of sysexits.h).
const ExitCode = 78

// Error is what is wrong with one variable.
type Error struct {
	// Variable is the name of the environment variable.
	Variable string
	// Problem says what is wrong; it never holds the value of a secret.
	Problem string
	// Fix says what to do.
	Fix string
}

// Error returns one line: VARIABLE: what is wrong; what to do.
func (e *Error) Error() string {
	line := e.Problem
	if e.Variable != "" {
		line = e.Variable + ": " + line
	}
	if e.Fix != "" {
		line += "; " + e.Fix
	}
	return line
}

// mostErrors is how many errors are listed.
const mostErrors = 20

// Errors is what is wrong with a configuration, sorted by variable: the first 20 problems, and one without a variable
// that says how many more there are. Each element is an [*Error].
type Errors []error

// Error returns one line per error.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives errors.Is and errors.As access to every element.
func (e Errors) Unwrap() []error { return e }

// Warning is something that does not stop Tidegate but is probably not meant.
type Warning struct {
	// Variable is the name of the environment variable.
	Variable string `json:"variable"`
	// Message says what is odd and what to do, without values of secrets.
	Message string `json:"message"`
}

// String returns one line: VARIABLE: message.
func (w Warning) String() string { return w.Variable + ": " + w.Message }

// AboutAlerts reports whether the warning concerns alerts only.
func (w Warning) AboutAlerts() bool {
	return strings.HasPrefix(w.Variable, "SLACK_") || strings.HasPrefix(w.Variable, "ALERT_") || strings.HasPrefix(w.Variable, "PAGERDUTY_")
}

// AboutWorkers reports whether the warning concerns workers only.
func (w Warning) AboutWorkers() bool {
	return w.Variable == "CREDENTIALS_KEY" || strings.HasPrefix(w.Variable, "DESTINATION_") && strings.HasSuffix(w.Variable, "_TIMEOUT") ||
		strings.Contains(w.Variable, " destinations.") && strings.HasSuffix(w.Variable, ".timeout")
}

// findings collects errors and warnings while a configuration is read.
type findings struct {
	errors   []*Error
	warnings []Warning
	bad      map[string]bool
	yaml     *destinationsFile // names the position of a setting; nil: there is no file
}

func (f *findings) fail(variable, fix, problem string, args ...any) {
	if f.bad == nil {
		f.bad = map[string]bool{}
	}
	f.bad[variable] = true
	f.errors = append(f.errors, &Error{Variable: variable, Problem: fmt.Sprintf(problem, args...), Fix: fix})
}

func (f *findings) warn(variable, message string, args ...any) {
	f.warnings = append(f.warnings, Warning{Variable: variable, Message: fmt.Sprintf(message, args...)})
}

// ok reports whether none of the variables has an error yet: a check across
// several of them says nothing useful about values that could not be read.
func (f *findings) ok(variables ...string) bool {
	return !slices.ContainsFunc(variables, func(v string) bool { return f.bad[v] })
}

// result returns sorted warnings and, if there is any error, sorted Errors.
func (f *findings) result() ([]Warning, error) {
	for i, w := range f.warnings {
		f.warnings[i] = Warning{Variable: f.yaml.shown(w.Variable), Message: f.yaml.reworded(w.Message)}
	}
	for _, e := range f.errors {
		e.Variable, e.Problem, e.Fix = f.yaml.shown(e.Variable), f.yaml.reworded(e.Problem), f.yaml.reworded(e.Fix)
	}
	slices.SortStableFunc(f.warnings, func(a, b Warning) int { return compareNames(a.Variable, b.Variable) })
	if len(f.errors) == 0 {
		return f.warnings, nil
	}
	slices.SortStableFunc(f.errors, func(a, b *Error) int { return compareNames(a.Variable, b.Variable) })
	if more := len(f.errors) - mostErrors; more > 0 {
		f.errors = append(f.errors[:mostErrors], &Error{Problem: fmt.Sprintf("and %d more problems", more), Fix: "correct these first"})
	}
	errs := make(Errors, len(f.errors))
	for i, e := range f.errors {
		errs[i] = e
	}
	return f.warnings, errs
}

// compareNames orders by name, with numbers in them by value: DESTINATION_2_
// comes before DESTINATION_10_, and line 2 of a file before line 10.
func compareNames(a, b string) int {
	between := func(r rune) bool { return r == '_' || r == ':' }
	as, bs := strings.FieldsFunc(a, between), strings.FieldsFunc(b, between)
	for i := range min(len(as), len(bs)) {
		an, aerr := strconv.Atoi(as[i])
		bn, berr := strconv.Atoi(bs[i])
		if aerr == nil && berr == nil && an != bn {
			return cmp.Compare(an, bn)
		}
		if c := cmp.Compare(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}
