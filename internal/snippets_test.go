package internal_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// given declares what the fragments of a page leave to the reader.
var given = map[string]string{
	"docs/alerts.md": `var pictures publisher.Handler`,
	"docs/breaker.md": `
		var b *breaker.Breaker
		var permit *breaker.Permit
		var picture any
		var userID string
		var resp *http.Response
		var errTooMany error
		func publish(context.Context, any) (time.Duration, error)
		func reschedule(any, time.Duration)
		func call(context.Context) (*http.Response, error)
		func userOf(*http.Request) string`,
	"docs/life-of-a-job.md": `
		var picture any
		var retryAfter time.Duration
		var gallery publisher.Handler`,
	"docs/tracing.md": `
		var provider trace.TracerProvider
		var apiURL string`,
}

// givenEverywhere holds for each page.
const givenEverywhere = `
	var ctx context.Context
	var rdb redis.UniversalClient
	var client *jobs.Client`

// roots are the packages that code of the pages may import; fragments get them by their name.
var roots = []string{
	"../alerts/...", "../breaker/...", "../jobs/...", "../publisher/...",
	"github.com/redis/go-redis/v9", "go.opentelemetry.io/otel/trace", "net/http/httptest", "database/sql",
}

// The Go code of each page compiles: files as they are, declarations with their imports,
// statements in a function.
func TestSnippets(t *testing.T) {
	t.Parallel()
	c := newCompiler(t)
	blocks := goBlocks(t)
	if len(blocks) < 10 {
		t.Fatalf("found %d blocks", len(blocks))
	}
	for _, b := range blocks {
		for _, err := range c.compile(b) {
			t.Error(err)
		}
	}
	for code, want := range map[string]string{
		"package main\n\nfunc main() {\n\tn := 1\n}\n":                       "page.md:4:2: declared and not used: n",
		"package main\n\nimport \"fmt\"\n\nfunc main() {}\n":                 `page.md:3:8: "fmt" imported and not used`,
		"n := jobs.New(\"pictures\", nil, jobs.MaxReschedule(1))\n":          "page.md:1:37: undefined: jobs.MaxReschedule",
		"func f() error {\n\treturn errors.Join(1)\n}\n":                     "page.md:2:21: cannot use 1",
		"options := publisher.Options{…}\n":                                  "page.md:1:30: illegal character U+2026 '…'",
		"var d time.Duration = \"1s\"\nerr := client.Cancel(ctx, \"job\")\n": "page.md:1:23: cannot use \"1s\"",
		"err := client.Cancel(ctx, \"job\")\nerr := client.Pause(ctx, 1)\n":  "page.md:2:5: no new variables on left side of :=",
		"package main\n\nfunc main() {\n\tfmt.Println(client)\n}\n":          "page.md:4:2: undefined: fmt",
	} {
		got := c.compile(block{page: "page.md", code: code})
		if !slices.ContainsFunc(got, func(err error) bool { return strings.HasPrefix(err.Error(), want) }) {
			t.Errorf("%s\ngave %q, want %s", code, got, want)
		}
	}
}

// A block is Go code of a page, and the line before it.
type block struct {
	page string
	line int
	code string
}

// goBlocks returns the blocks of Go code of all pages.
func goBlocks(t *testing.T) []block {
	t.Helper()
	var blocks []block
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "..":
			return fs.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		var in *block
		n, page := 0, filepath.ToSlash(strings.TrimPrefix(path, "../"))
		for line := range strings.Lines(string(text)) {
			n++
			fence := strings.TrimSpace(line)
			switch {
			case in == nil && (fence == "```go" || fence == "```golang"):
				in = &block{page: page, line: n}
			case in != nil && fence == "```":
				blocks = append(blocks, *in)
				in = nil
			case in != nil:
				in.code += line
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

// A compiler checks the types of code that imports ours.
type compiler struct {
	fset    *token.FileSet
	imports types.Importer
	path    map[string]string // of the package with this name
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	args := []string{
		"list", "-export", "-deps", "-f",
		"{{.Name}} {{.ImportPath}} {{.Export}} {{if .DepOnly}}{{.Standard}}{{else}}true{{end}}",
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, roots...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	c := &compiler{fset: token.NewFileSet(), path: map[string]string{}}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			continue // unsafe has no export data
		}
		exports[f[1]] = f[2]
		if f[3] == "true" && !strings.Contains(f[1], "internal/") && !strings.Contains(f[1], "vendor/") {
			c.path[f[0]] = f[1]
		}
	}
	c.imports = importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, errors.New("not below the roots of this test")
		}
		return os.Open(exports[path])
	})
	return c
}

// compile returns what the compiler says of the code, at its place in the page. A fragment
// gets what is given and its imports, and may leave variables unused.
func (c *compiler) compile(b block) []error {
	fragment := !strings.HasPrefix(b.code, "package ")
	source := fmt.Sprintf("/*line %s:%d:1*/%s", b.page, b.line+1, b.code)
	if fragment {
		if _, err := c.parse("package page\n" + source); err != nil { // statements
			source = "func _() error {" + source + "\nreturn nil }"
		}
		source = givenEverywhere + "\n" + given[b.page] + "\n" + source
		file, err := c.parse("package page\n" + source)
		if err != nil {
			return []error{err}
		}
		imports := map[string]string{}
		for _, id := range file.Unresolved {
			if path := c.path[id.Name]; path != "" {
				imports[path] = fmt.Sprintf("import %q\n", path)
			}
		}
		source = "package page\n" + strings.Join(slices.Collect(maps.Values(imports)), "") + source
	}
	file, err := c.parse(source)
	if err != nil {
		return []error{err}
	}
	var errs []error
	config := types.Config{
		Importer: c.imports,
		Error: func(err error) {
			if !fragment || !strings.Contains(err.Error(), "declared and not used") {
				errs = append(errs, err)
			}
		},
	}
	_, _ = config.Check(file.Name.Name, c.fset, []*ast.File{file}, nil)
	return errs
}

func (c *compiler) parse(source string) (*ast.File, error) {
	return parser.ParseFile(c.fset, "", source, 0)
}
