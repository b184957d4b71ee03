package expression_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/call/expression"
)

// hostile are expressions that work hard, and answers that make them work as hard as the
// bounds permit.
var hostile = []struct{ name, source, body string }{
	{"iterations", strings.Repeat("any(body, # == nil) || ", 25) + "false", "[" + strings.Repeat("1,", 32000) + "1]"},
	{"many small objects", `len(map(body, {{"a": .x, "b": .y}})) > 0`, "[" + strings.Repeat(`{"x":1},`, 10000) + `{}]`},
	{"a pattern that hangs backtracking engines", `body matches "^(a+)+(a+)+$"`, `"` + strings.Repeat("a", 250<<10) + `!"`},
	{"a pattern with many states", `body matches "a.{70}b.{70}c$"`, `"` + strings.Repeat("ab", 125<<10) + `"`},
	{"doubled text", `let x = body + body; let y = x + x; let z = y + y; z + z == ""`, `"` + strings.Repeat("x", 100<<10) + `"`},
	{"text of lists", `string(body) + string(body) == ""`, "[" + strings.Repeat("[[[[]]]],", 5000) + "1]"},
	{"large numbers", `body ** body ** body > 1`, strings.Repeat("9", 200)},
	{"deep equality", strings.Repeat(`body == body && `, 50) + "true", "[" + strings.Repeat(`{"x":[1,2]},`, 4000) + "1]"},
	{"search", strings.Repeat(`body contains "aaaaaaab" || `, 60) + "false", `"` + strings.Repeat("a", 250<<10) + `"`},
}

// Each hostile evaluation ends soon and within little memory, with a result or an error. The
// times are bounded far above what they take, so that a busy machine does not matter: without
// the bounds they would be minutes.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, row := range hostile {
		start := time.Now()
		p, err := expression.Compile(row.source, expression.Options{Vars: vars, Bool: true})
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		v, err := p.Eval(env(t, row.body))
		took := time.Since(start)
		t.Logf("%-45s %8s  %v, %.60v", row.name, took.Round(time.Microsecond), v, err)
		if took > 20*time.Second {
			t.Errorf("%s took %s", row.name, took)
		}
	}
}

// A value that holds the same list many times is not written: as text it would have 2 to the
// power of 64 values.
func TestSharedValues(t *testing.T) {
	t.Parallel()
	v := any("x")
	for range 64 {
		v = []any{v, map[string]any{"a": v}}
	}
	if text, err := expression.Text(v); err == nil || err.Error() != "the text is longer than 262144 bytes" {
		t.Errorf("%.60s, %v", text, err)
	}
	p, err := expression.Compile("string(body)", expression.Options{Vars: vars})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := p.Eval(map[string]any{"body": func() any { return v }}); err == nil || err.Error() != "column 1: the text is longer than 262144 bytes" {
		t.Errorf("%.60s, %v", text, err)
	}
	for most, want := range map[int]bool{11: false, 12: true} {
		if got := expression.Fits([]any{"abc", 1, []string{"d"}, map[string]any{}}, most); got != want {
			t.Errorf("in %d bytes: %t", most, got)
		}
	}
}

// BenchmarkHostile shows time and memory of the hostile evaluations.
func BenchmarkHostile(b *testing.B) {
	for _, row := range hostile {
		b.Run(strings.ReplaceAll(row.name, " ", "_"), func(b *testing.B) {
			p, err := expression.Compile(row.source, expression.Options{Vars: vars, Bool: true})
			if err != nil {
				b.Fatal(err)
			}
			e := env(b, row.body)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = p.Eval(e)
			}
		})
	}
}

// BenchmarkJSON shows what decoding costs at most.
func BenchmarkJSON(b *testing.B) {
	for name, text := range map[string]string{
		"1_KiB":   `{"a": "` + strings.Repeat("x", 500) + `", "b": [` + strings.Repeat(`{"c": 1, "d": "e"},`, 25) + `1]}`,
		"numbers": "[" + strings.Repeat("1,", 32000) + "1]",
		"objects": "[" + strings.Repeat(`{"a":{}},`, 8000) + "1]",
		"deep":    strings.Repeat("[", 256<<10),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				v, _ := expression.JSON([]byte(text))
				runtime.KeepAlive(v)
			}
		})
	}
}

func BenchmarkEval(b *testing.B) {
	p, err := expression.Compile(`status == 403 && body.error?.type == "rate"`, expression.Options{Vars: vars, Bool: true})
	if err != nil {
		b.Fatal(err)
	}
	e := env(b, `{"error": {"type": "rate"}}`)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Eval(e)
	}
}

// BenchmarkCompile shows what an expression costs at an enqueue: others each time, and the same again.
func BenchmarkCompile(b *testing.B) {
	o := expression.Options{Vars: map[string]expression.Type{"parents": expression.Members}, Untrusted: true}
	for name, text := range map[string]func(int) string{
		"different": func(i int) string { return "{{ parents.a.b" + strconv.Itoa(i) + " }}" },
		"same":      func(int) string { return "{{ parents.a.b }}" },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := expression.CompileTemplate(text(i), o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
