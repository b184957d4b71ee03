package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestGeneratedLoad holds testdata/load.txt: what is wrong with configurations, word by word.
func TestGeneratedLoad(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, `{"alice":"r1"}`, 0o600)
	compareFile(t, "testdata/load.txt", func(cases string) string {
		blocks := strings.Split(strings.TrimSpace(cases), "\n\n")
		for i, block := range blocks[1:] {
			lines := slices.DeleteFunc(strings.Split(block, "\n"), func(line string) bool {
				return strings.HasPrefix(line, "error: ") || strings.HasPrefix(line, "warning: ")
			})
			_, warnings, err := Load(environOf(t, lines[1:], tokens))
			said := len(lines)
			var problems Errors
			if err != nil && !errors.As(err, &problems) {
				t.Errorf("%s: error is %T", lines[0], err)
			}
			for _, problem := range problems {
				lines = append(lines, "error: "+problem.Error())
			}
			for _, warning := range warnings {
				lines = append(lines, "warning: "+warning.String())
			}
			for _, line := range lines[said:] {
				if strings.Contains(line, "hunter2") || strings.Contains(line, "aHVudGVyMg") {
					t.Errorf("%s: shows a secret: %s", lines[0], line)
				}
			}
			blocks[i+1] = strings.Join(lines, "\n")
		}
		return strings.Join(blocks, "\n\n") + "\n"
	})
}

// environOf reads the environment of a case.
func environOf(t *testing.T, lines []string, tokens string) []string {
	t.Helper()
	var environ []string
	for _, line := range lines {
		switch {
		case line == "SHOP":
			environ = append(environ, one...)
		case strings.HasPrefix(line, `"`):
			entry, err := strconv.Unquote(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			environ = append(environ, entry)
		default:
			environ = append(environ, strings.ReplaceAll(line, "$TOKENS", tokens))
		}
	}
	return environ
}

// TestGeneratedConfigs holds what Load makes of testdata/NAME.env: all fields of the Config, and what
// Print prints of it.
func TestGeneratedConfigs(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, `{"alice":"hunter2"}`, 0o600)
	secret := writeFile(t, "hunter2", 0o600)
	for _, name := range []string{"default", "every", "secret"} {
		content, err := os.ReadFile("testdata/" + name + ".env")
		if err != nil {
			t.Fatal(err)
		}
		environ := strings.Split(strings.ReplaceAll(strings.TrimRight(string(content), "\n"), "$SECRET", secret), "\n")
		cfg, warnings := load(t, environOf(t, environ, tokens)...)
		compareFile(t, "testdata/"+name+".txt", func(string) string {
			var out strings.Builder
			if name != "secret" {
				dump(&out, "", reflect.ValueOf(cfg).Elem())
				fmt.Fprintln(&out)
			}
			if err := cfg.Print(&out); err != nil {
				t.Fatal(err)
			}
			for _, w := range warnings {
				fmt.Fprintln(&out, "warning: "+w)
			}
			text := strings.ReplaceAll(out.String(), tokens, "$TOKENS")
			if name == "secret" && strings.Contains(text, "hunter2") {
				t.Errorf("Print shows a secret: %s", text)
			}
			return text
		})
	}
}

// dump writes the fields of a struct, secrets too.
func dump(out *strings.Builder, name string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct && v.NumField() > 0:
		for f, field := range v.Fields() {
			if f.IsExported() {
				dump(out, strings.TrimPrefix(name+"."+f.Name, "."), field)
			}
		}
	case v.Type() == reflect.TypeFor[[]Destination]():
		for i := range v.Len() {
			dump(out, fmt.Sprintf("%s[%d]", name, i), v.Index(i))
		}
	case v.Type() == reflect.TypeFor[Secret]():
		fmt.Fprintf(out, "%s: %q\n", name, v.String())
	case v.Kind() == reflect.Int64 && v.Type() != reflect.TypeFor[int]():
		fmt.Fprintf(out, "%s: %v\n", name, time.Duration(v.Int()))
	default:
		fmt.Fprintf(out, "%s: %#v\n", name, v.Interface())
	}
}

func TestLoadSetButEmpty(t *testing.T) {
	t.Parallel()
	environ := slices.Clone(one)
	var want []string
	for _, v := range table() {
		if name := strings.Replace(v.name, "<i>", "0", 1); !v.required {
			environ = append(environ, name+"= ")
			if v.secret {
				want = append(want, name+": is set but empty; it counts as not set")
			}
		}
	}
	cfg, warnings := load(t, environ...)
	defaults, _ := load(t, one...)
	if diff := cmp.Diff(defaults, cfg, ignoreEntries); diff != "" {
		t.Errorf("empty variables changed the defaults (-default +got):\n%s", diff)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
