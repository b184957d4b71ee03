package expression_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/expression"
)

var vars = map[string]expression.Type{
	"status": expression.Int, "key": expression.String, "headers": expression.Lazy, "body": expression.Lazy, "parents": expression.Any,
}

// env is what an answer of an API looks like to an expression.
func env(t testing.TB, body string) map[string]any {
	t.Helper()
	v, err := expression.JSON([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"status": 403, "key": "alice", "parents": map[string]any{},
		"headers": func() any { return map[string]string{"retry-after": "30"} },
		"body":    func() any { return v },
	}
}

func TestEval(t *testing.T) {
	t.Parallel()
	const body = `{"ok": false, "error": {"type": "rate", "n": 3, "f": 2.5}, "text": "a,b",
		"errors": [{"code": "X", "user": "bob"}, {"code": "THROTTLED", "user": "alice"}], "list": [3, 1, 2], "large": 98765432109876543210, "id": 9163772421734832}`
	for _, row := range []struct {
		source string
		want   any
	}{
		{`status == 403`, true},
		{`status in 400..499 && status in [403, 429]`, true},
		{`body.ok == false`, true},
		{`!body.ok`, true},
		{`body.missing == nil`, true},
		{`body.missing?.deeper == "x"`, false},
		{`body.error.type == "rate" && body.error.n > 2`, true},
		{`body.error.n == 3.0`, true},
		{`any(body.errors, .code == "THROTTLED")`, true},
		{`any(body.errors, .code == "THROTTLED" && .user == key && status == 403)`, true},
		{`body.errors | filter(.code startsWith "T") | map(.user)`, []any{"alice"}},
		{`len(body.errors)`, 2},
		{`sum(body.list) + 1`, 7},
		{`map(body.list, # + 1)`, []any{4, 2, 3}},
		{`headers["retry-after"]`, "30"},
		{`headers["missing"]`, ""},
		{`int(headers["retry-after"]) * 2`, 60},
		{`"a " + body.error.type + "!"`, "a rate!"},
		{`status + 1`, 404},
		{`body.error.f + 1`, 3.5},
		{`body.error.type matches "^ra(te|ft)$"`, true},
		{`split(body.text, ",")[1]`, "b"},
		{`duration("30s") + duration("1m")`, 90 * time.Second},
		{`body.large`, "98765432109876543210"},
		{`body.id`, 9163772421734832},
		{`{"id": body.id}`, map[string]any{"id": 9163772421734832}},
		{`let e = body.error; e.type + "/" + string(e.n)`, "rate/3"},
		{`body.ok ? 1 : 2`, 2},
		{`type(body.text)`, "string"},
	} {
		p, err := expression.Compile(row.source, expression.Options{Vars: vars})
		if err != nil {
			t.Errorf("%s: %v", row.source, err)
			continue
		}
		got, err := p.Eval(env(t, body))
		if diff := cmp.Diff(row.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", row.source, err, diff)
		}
	}
}

// What an operator has written wrong, with the column where.
func TestCompileErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ source, want string }{
		{"", "column 1: the expression is empty"},
		{"status = 403", "column 8: "},
		{"status ==", "column 9: unexpected token EOF"},
		{"statsu == 403", "column 1: unknown name statsu"},
		{"status == 403 &&\n  statsu == 1", "line 2, column 3: unknown name statsu"},
		{`status == "403"`, "column 8: invalid operation: =="},
		{"status", "column 1: expected bool, but got int"},
		{`body.ok && readFile("x")`, "column 12: readFile is not a function that is available"},
		{`repeat("x", 1000) == ""`, "column 1: repeat is not a function that is available"},
		{`toJSON(body) == ""`, "column 1: toJSON is not a function that is available"},
		{`reduce(body, #acc + #) == 1`, "column 1: reduce is not available"},
		{`now().Year() == 2026`, "column 7: methods are not available"},
		{`body.f() == 1`, "column 6: methods are not available"},
		{`$env == nil`, "column 1: $env is not available"},
		{`any(body.a, any(.b, # == 1))`, "column 21: a predicate cannot iterate over another list"},
		{`any(body.a, # == body.b)`, "column 18: body cannot be used within a predicate"},
		{`let x = body.a; any(x, # == x)`, "column 29: x cannot be used within a predicate"},
		{`any(body.a, # in 1..5)`, "column 19: a range cannot be used within a predicate"},
		{`len(1..2000) > 1`, "column 6: a range must have constants as its ends, and at most 1000 values"},
		{`len(1..status) > 1`, "column 6: a range must have constants as its ends"},
		{`body matches key`, "column 14: the pattern of matches must be a constant text"},
		{`body matches "("`, "column 14: the pattern of matches is not valid"},
		{`body matches "(a{1,100}){1,9}"`, "column 14: the patterns of matches are too large"},
		{strings.Repeat("status == 1 || ", 100) + "true", "compilation failed: expression exceeds maximum allowed nodes"},
		{strings.Repeat("(", 5000), "column 1: the expression is longer than 4096 bytes"},
		{strings.Repeat("(", 4000), "unexpected token EOF"},
		{strings.Repeat("!", 4000) + "true", "maximum allowed nodes"},
		{strings.Repeat("[", 4000), "unexpected token EOF"},
	} {
		_, err := expression.Compile(row.source, expression.Options{Vars: vars, Bool: true})
		e, ok := errors.AsType[*expression.Error](err)
		if !ok || !strings.Contains(e.Error(), row.want) {
			t.Errorf("%.60s: %v, want %q", row.source, err, row.want)
		}
	}
}

// An answer without a field, or with a field of another type, is an error and never a panic.
func TestEvalErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ source, body, want string }{
		{`body.error.type == "x"`, `{}`, "column 12: cannot fetch type from <nil>"},
		{`body.error == 1`, `"text"`, "column 6: "},
		{`body.a > 1`, `{"a": "x"}`, "column 8: invalid operation: string > int"},
		{`body.a && true`, `{"a": 1}`, "invalid operation: bool(int)"},
		{`any(body.a, # == 1)`, `{"a": {"x": 1}}`, ""},
		{`any(body.a, .x == 1)`, `{"a": [1]}`, ""},
		{`any(body.a, # + "y" == "xy")`, `{"a": ["x"]}`, "text cannot be joined within a predicate"},
		{`1 % body.a == 0`, `{"a": 0}`, "integer divide by zero"},
		{`int(body.a) == 0`, `{"a": "x"}`, ""},
		{`date(body.a) > now()`, `{"a": "x"}`, ""},
		{`body.a matches "x"`, `{"a": 1}`, ""},
		{`body.a contains "x"`, `{"a": 1}`, ""},
		{`body[7] == 1`, `[1]`, "index out of range"},
		{`len(split(body.a, "")) == 1`, `{"a": "` + strings.Repeat("x", 2000) + `"}`, "split makes more than 1000 parts"},
	} {
		p, err := expression.Compile(row.source, expression.Options{Vars: vars, Bool: true})
		if err != nil {
			t.Errorf("%s: %v", row.source, err)
			continue
		}
		_, err = p.Eval(env(t, row.body))
		e, ok := errors.AsType[*expression.Error](err)
		if !ok || !strings.Contains(e.Error(), row.want) {
			t.Errorf("%s of %.40s: %v, want %q", row.source, row.body, err, row.want)
		}
	}
}

// A lazy value is made when an expression gets to it.
func TestLazy(t *testing.T) {
	t.Parallel()
	p, err := expression.Compile(`status == 200 && body.ok`, expression.Options{Vars: vars, Bool: true})
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	body := func() any { calls++; return map[string]any{"ok": true} }
	for status, want := range map[int]bool{200: true, 403: false} {
		if got, err := p.Eval(map[string]any{"status": status, "body": body}); got != want || err != nil {
			t.Errorf("status %d: %v, %v", status, got, err)
		}
	}
	if calls != 1 || !p.Uses("body") || p.Uses("headers") {
		t.Errorf("%d calls; uses body %t, headers %t", calls, p.Uses("body"), p.Uses("headers"))
	}
}

func TestConcurrentEval(t *testing.T) {
	t.Parallel()
	p, err := expression.Compile(`any(body.list, # == status) ? body.list : []`, expression.Options{Vars: vars})
	if err != nil {
		t.Fatal(err)
	}
	e := env(t, `{"list": [1, 403]}`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if v, err := p.Eval(e); err != nil || len(v.([]any)) != 2 {
					t.Errorf("%v, %v", v, err)
				}
			}
		})
	}
	all.Wait()
}

func TestJSON(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, row := range []struct{ name, text, problem string }{
		{"object", `{"a": [1, 2.5, "x", null, true]}`, ""},
		{"as deep as may be", nested(expression.MaxDepth), ""},
		{"too deep", nested(expression.MaxDepth + 1), "is nested deeper than 64"},
		{"brackets in text", `"` + strings.Repeat(`[\"`, 1000) + `"`, ""},
		{"very deep", strings.Repeat("[", 200<<10), "is nested deeper than 64"},
		{"too many values", "[" + strings.Repeat("1,", expression.MaxValues) + "1]", "holds more than 32768 values"},
		{"too long", `"` + strings.Repeat("x", expression.MaxJSON) + `"`, "is longer than 262144 bytes"},
		{"HTML", "<html>", "is not JSON"},
		{"empty", "", "is not JSON"},
		{"two values", "{} {}", "text follows the value"},
		{"cut", `{"a": `, "is not JSON"},
	} {
		_, err := expression.JSON([]byte(row.text))
		if (err == nil) != (row.problem == "") || err != nil && !strings.Contains(err.Error(), row.problem) {
			t.Errorf("%s: %v, want %q", row.name, err, row.problem)
		}
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	e := env(t, `{"id": 9163772421734832, "name": "a}}b", "list": [1, "x"], "pi": 3.5}`)
	for _, row := range []struct{ text, want string }{
		{"plain", "plain"},
		{"", ""},
		{"/items/{{ body.id }}?n={{body.pi}}", "/items/9163772421734832?n=3.5"},
		{"{{ body.name }}", "a}}b"},
		{`{{ body.name == "a}}b" ? "yes" : 'no' }}!`, "yes!"},
		{`{{ {"a": {"b": body.pi}}}}`, `{"a":{"b":3.5}}`},
		{"{{ body.list }}", `[1,"x"]`},
		{"wait {{ duration('90s') }}", "wait 1m30s"},
		{"a } } b {", "a } } b {"},
	} {
		tmpl, err := expression.CompileTemplate(row.text, expression.Options{Vars: vars})
		if err != nil {
			t.Errorf("%s: %v", row.text, err)
			continue
		}
		if got, err := tmpl.Eval(e); got != row.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", row.text, got, err, row.want)
		}
	}
	for _, row := range []struct{ text, want string }{
		{"id {{ body.id", "column 4: {{ is not closed by }}"},
		{"id {{ bdy.id }}", "column 7: unknown name bdy"},
		{"one\ntwo {{ bdy.id }}", "line 2, column 8: unknown name bdy"},
		{"{{ }}", "column 3: the expression is empty"},
	} {
		if _, err := expression.CompileTemplate(row.text, expression.Options{Vars: vars}); err == nil || err.Error() != row.want {
			t.Errorf("%s: %v, want %q", row.text, err, row.want)
		}
	}
	missing, err := expression.CompileTemplate("/items/{{ body.itemid }}", expression.Options{Vars: vars})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := missing.Eval(e); err == nil || err.Error() != "body.itemid: there is no such value" || !missing.Uses("body") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConjuncts(t *testing.T) {
	t.Parallel()
	for source, want := range map[string][]string{
		"status == 200": {"status == 200"},
		"status == 200 && body.ok and key != 'é'": {"status == 200", "body.ok", "key != 'é'"},
		"key == 'é && ü' && status == 200":        {"key == 'é && ü'", "status == 200"},
		"status == 200 && (body.a || body.b)":     {"status == 200", "(body.a || body.b)"},
		"status == 200 && body.a || body.b":       {"status == 200 && body.a || body.b"},
		"let x = status; x == 1 && x == 2":        {"let x = status; x == 1 && x == 2"},
		"any([1], # == 1 && true) && status == 1": {"any([1], # == 1 && true)", "status == 1"},
		"(status == 200 && body.a) && body.b":     {"(status == 200", "body.a)", "body.b"},
		"status ==":                               {"status =="},
	} {
		if diff := cmp.Diff(want, expression.Conjuncts(source, expression.Options{Vars: vars, Bool: true})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", source, diff)
		}
	}
}

// A pattern that repeats itself often is refused before it is compiled, which would take 140 MiB.
func TestLargePatternCostsLittle(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	source := "body matches '" + strings.Repeat(".{1000}", 500) + "'"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := expression.Compile(source, expression.Options{Vars: vars, Bool: true})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "the patterns of matches are too large") {
		t.Errorf("error %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
		t.Errorf("it took %d MiB", took>>20)
	}
}

// An untrusted expression is compiled once, however many texts have it, and with other variables again.
func TestTemplatesShareWhatIsCompiled(t *testing.T) {
	t.Parallel()
	o := expression.Options{Vars: map[string]expression.Type{"parents": expression.Members}, Untrusted: true}
	program := func(text string, o expression.Options) *expression.Program {
		t.Helper()
		template, err := expression.CompileTemplate(text, o)
		if err != nil {
			t.Fatal(err)
		}
		return template.Only()
	}
	first := program("{{ parents.shared.a }}", o)
	for i := range 100 {
		if got := program("{{ parents.shared.a }}", o); got != first {
			t.Fatalf("it was compiled again at text %d", i+2)
		}
	}
	other := o
	other.Vars = map[string]expression.Type{"parents": expression.Any}
	if got := program("{{ parents.shared.a }}", other); got == first || got.Members() != nil {
		t.Error("it was not compiled again for other variables")
	}
	for i := range 2000 { // bounded
		program(fmt.Sprintf("{{ parents.shared.b%d }}", i), o)
	}
	if got := program("{{ parents.shared.a }}", o); got == first {
		t.Error("expressions are kept without a bound")
	}
}
