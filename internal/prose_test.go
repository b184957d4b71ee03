package internal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stops matches phrases at which a reader stops, since they name a thing only by a pronoun: see the rules in
// CONTRIBUTING.md. stopsInCode holds comments to more.
var (
	stops       = regexp.MustCompile(`\b(of which|of whose|those of|those that|so many|of such)\b`)
	stopsInCode = regexp.MustCompile(stops.String() + `|\bthat of\b`)
)

// comments match the text of a comment, by the extension of its file.
var comments = map[string]*regexp.Regexp{
	".go":  regexp.MustCompile(`(?:^|\s)//(.*)$`),
	".lua": regexp.MustCompile(`(?:^|\s)--(.*)$`),
}

// Pages and comments name the thing in place of a pronoun.
func TestLayoutProse(t *testing.T) {
	t.Parallel()
	check := func(path string, stops *regexp.Regexp, text func(line string) string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(data)) {
			n++
			if found := stops.FindString(text(strings.TrimSuffix(line, "\n"))); found != "" {
				t.Errorf("%s:%d: %q: name the thing", path, n, found)
			}
		}
	}
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../README.md", "../CHANGELOG.md", "serve/api/openapi.json") {
		if filepath.Base(page) != "configuration.md" { // made from comments of internal/config
			check(page, stops, func(line string) string { return line })
		}
	}
	for _, pkg := range []string{"../jobs", "../alerts", "../publisher", "../internal", "../cmd", "../breaker"} {
		err := filepath.WalkDir(pkg, func(path string, _ fs.DirEntry, err error) error {
			generated := strings.HasSuffix(path, ".gen.go") // which may happen beside this test, from the OpenAPI document
			if comment := comments[filepath.Ext(path)]; err == nil && comment != nil && !generated && !strings.HasSuffix(path, "_test.go") {
				check(path, stopsInCode, func(line string) string {
					if m := comment.FindStringSubmatch(line); m != nil {
						return m[1]
					}
					return ""
				})
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
