package config

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated files instead of comparing them")

const (
	referenceFile = "../../docs/configuration.md"
	exampleFile   = "../../config.example.env"
	schemaFile    = "../../deploy/helm/tidegate/values.schema.json"
	valuesFile    = "../../deploy/helm/tidegate/values.yaml"
)

// The TestGenerated… fail when a variable changed and what is generated from it did not.
func TestGeneratedReference(t *testing.T) {
	compareGenerated(t, "testdata/configuration.md.tmpl", referenceFile)
}

func TestGeneratedExample(t *testing.T) {
	compareGenerated(t, "testdata/config.example.env.tmpl", exampleFile)
}

func compareGenerated(t *testing.T, templateFile, file string) {
	t.Helper()
	tmpl, err := template.ParseFiles(templateFile)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := tmpl.Execute(&want, documentation(t)); err != nil {
		t.Fatal(err)
	}
	compareFile(t, file, func(string) string { return want.String() })
}

// compareFile compares a file with what generate makes of it, or writes that.
func compareFile(t *testing.T, file string, generate func(string) string) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := generate(string(got))
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is stale; run: go generate ./internal/config\n%s", file, diff)
	}
}

type (
	docs struct {
		Groups []docGroup
	}
	docGroup struct {
		Title, Intro, IntroLines string
		Variables                []docVariable
	}
	docVariable struct {
		Name, Default, Values, Doc, DocLines, Assignment string

		Override bool // of a variable that the reference has
	}
)

// documentation joins the table with the comments of the structs in vars.go.
func documentation(t *testing.T) docs {
	t.Helper()
	comments := readComments(t)
	var (
		d        docs
		override bool
	)
	for _, v := range table() {
		text := comments[v.comment]
		if text == "" {
			t.Fatalf("%s has no comment in vars.go", v.name)
		}
		if override = strings.HasPrefix(v.name, blockPrefix+"CIRCUIT_BREAKER_"); override {
			text = "Overrides `" + strings.TrimPrefix(v.name, blockPrefix) + "`."
		}
		dv := docVariable{
			Name:       v.name,
			Default:    documentedDefault(v, override),
			Values:     documentedValues(v),
			Doc:        strings.ReplaceAll(text, "\n", " "),
			DocLines:   commentLines(v, text, override),
			Assignment: assignment(v),
			Override:   override,
		}
		title, intro, _ := strings.Cut(comments[v.group], "\n\n")
		if n := len(d.Groups); n == 0 || d.Groups[n-1].Title != title {
			g := docGroup{Title: title, Intro: strings.ReplaceAll(intro, "\n", " ")}
			if intro != "" {
				g.IntroLines = "# " + strings.ReplaceAll(strings.ReplaceAll(intro, "`", ""), "\n", "\n# ")
			}
			d.Groups = append(d.Groups, g)
		}
		g := &d.Groups[len(d.Groups)-1]
		g.Variables = append(g.Variables, dv)
	}
	return d
}

func documentedDefault(v variable, override bool) string {
	switch {
	case override:
		return "the global value"
	case v.required:
		return "*required*"
	case v.field == "ProbeTimeout":
		return "the destination's timeout + 5 s"
	case v.def == "":
		return ""
	}
	return "`" + v.def + "`"
}

// counted is a kind of values that their default and their name show, unbounded a range without
// news.
var (
	counted   = regexp.MustCompile(`^(a whole number|a number|a duration)( of [a-z]+)?(, | (from)|$)`)
	unbounded = regexp.MustCompile(`^([01](s|ms)? or more|true or false|calls per time|one of .*|HTTP statuses .*|a mention|the name .*)$`)
)

func documentedValues(v variable) string {
	values := strings.TrimPrefix(v.allowed(), "use ")
	values, _, _ = strings.Cut(values, ", such as")
	if values = counted.ReplaceAllString(values, "$4"); unbounded.MatchString(values) {
		values = ""
	}
	if len(v.oneOf) > 0 {
		values = "`" + strings.Join(v.oneOf, "`, `") + "`"
	}
	if v.secret {
		values = strings.TrimPrefix(values+"; *secret*", "; ")
	}
	return values
}

func commentLines(v variable, text string, override bool) string {
	lines := "# " + strings.ReplaceAll(strings.ReplaceAll(text, "`", ""), "\n", "\n# ")
	switch {
	case override, v.required:
	case v.field == "ProbeTimeout":
		lines += "\n# Default: " + documentedDefault(v, override)
	case v.def == "":
		lines += "\n# Default: none."
	default:
		lines += "\n# Default: " + v.def
	}
	return lines
}

// assignment is the line of the example file: commented out unless a first
// configuration needs it.
func assignment(v variable) string {
	name := strings.Replace(v.name, "<i>", "0", 1)
	value := v.example
	if value == "" {
		value = v.def
	}
	if v.required || name == "REDIS_URL" || name == "DESTINATION_0_RETRY" {
		return name + "=" + value
	}
	return "#" + name + "=" + value
}

// readComments returns the comment of each field in vars.go, by Type.Field.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "vars.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			typ, ok := spec.(*ast.TypeSpec)
			if !ok {
				continue
			}
			fields, ok := typ.Type.(*ast.StructType)
			if !ok {
				continue
			}
			for _, field := range fields.Fields.List {
				names := field.Names
				if embedded, ok := field.Type.(*ast.Ident); ok && len(names) == 0 {
					names = []*ast.Ident{embedded}
				}
				for _, name := range names {
					comments[typ.Name.Name+"."+name.Name] = strings.TrimSpace(field.Doc.Text())
				}
			}
		}
	}
	return comments
}
