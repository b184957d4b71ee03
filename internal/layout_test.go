// Package internal_test holds the layout of CONTRIBUTING.md against the code.
package internal_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tidegate/tidegate/"

// Each package is in the layout, and imports what the arrows allow.
func TestLayout(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "../...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	_, layout, _ := strings.Cut(string(text), "## Layout")
	layout, arrows, _ := strings.Cut(layout, "### Arrows")
	arrows, _, _ = strings.Cut(arrows, "\n### ")

	var listed []string
	rooms, room := map[string]bool{}, ""
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9/]+) |^  ([a-z0-9]+) `).FindAllStringSubmatch(layout, -1) {
		if m[2] != "" {
			rooms[room] = true
			listed = append(listed, room+"/"+m[2])
			continue
		}
		room = strings.TrimSuffix(m[1], "/")
		listed = append(listed, room)
	}
	allowed := map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z/]+) → (.*)$`).FindAllStringSubmatch(arrows, -1) {
		allowed[m[1]] = append(strings.Split(m[2], ", "), m[1])
	}
	if len(listed) < 20 || len(allowed) < 10 {
		t.Fatalf("read %d packages and %d arrows of CONTRIBUTING.md", len(listed), len(allowed))
	}
	within := func(of []string) func(string) bool {
		return func(pkg string) bool {
			return slices.ContainsFunc(of, func(p string) bool { return pkg == p || p != "" && strings.HasPrefix(pkg, p+"/") })
		}
	}
	isListed := within(slices.DeleteFunc(listed, func(pkg string) bool { return rooms[pkg] && pkg != "internal/config" }))
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		pkg := strings.TrimPrefix(fields[0], module)
		if pkg != "internal" && !rooms[pkg] && !isListed(pkg) {
			t.Errorf("%s is not in the layout", pkg)
		}
		for of, may := range allowed {
			if pkg != of && !strings.HasPrefix(pkg, of+"/") {
				continue
			}
			for _, imported := range fields[1:] {
				if imported, ours := strings.CutPrefix(imported, module); ours && !within(may)(imported) {
					t.Errorf("%s imports %s, which no arrow allows", pkg, imported)
				}
			}
		}
	}
}

// Pipelines are run by redispipe, which sees to the errors of their commands.
func TestPipelines(t *testing.T) {
	t.Parallel()
	direct := regexp.MustCompile(`\.(Tx)?Pipeline(d)?\(`)
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}
{{end}}`, "../...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(file)
		if file == "" || strings.Contains(file, "/internal/base/redispipe/") {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := direct.Find(text); found != nil {
			t.Errorf("%s calls %s: use redispipe.Run", file, found)
		}
	}
}
