package api

import (
	"bytes"
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/ops"
	"github.com/tidegate/tidegate/jobs"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	doc := build(Options{}).document
	if *update {
		if err := os.WriteFile("openapi.json", doc, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(doc, committed) {
		t.Error("openapi.json is not what the code says; run: go generate ./internal/api")
	}
}

// schema is what the tests need of a schema.
type schema struct {
	Type        any
	Description string
	Enum        []any
	Examples    []any
	Properties  map[string]*schema
}

// described is what the tests need of the document.
type described struct {
	Paths map[string]map[string]struct {
		OperationID          string
		Summary, Description string
		Security             []map[string][]string
		Parameters           []struct {
			Name, Description string
		}
		RequestBody *struct{ Content map[string]any }
		Responses   map[string]struct {
			Description string
			Content     map[string]struct{ Schema map[string]any }
		}
	}
	Components struct {
		Schemas map[string]*schema
	}
}

func readDocument(t *testing.T) described {
	t.Helper()
	data, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var d described
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Everything in the document says what it is.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			where := method + " " + path
			if op.Summary == "" || op.Description == "" || op.OperationID == "" || ids[op.OperationID] || len(op.Security) != 1 {
				t.Errorf("%s: %+v", where, op)
			}
			ids[op.OperationID] = true
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s: parameter %s is not described", where, p.Name)
				}
			}
			want := []string{"401", "403", "422", "429", "500", "503"}
			if method == "post" {
				want = append(want, "400", "408", "413", "415")
			}
			for _, status := range want {
				if r := op.Responses[status]; r.Description == "" || r.Content[problemType].Schema["$ref"] != "#/components/schemas/Problem" {
					t.Errorf("%s: answer %s is %+v", where, status, r)
				}
			}
			for status, r := range op.Responses {
				if r.Description == "" || len(r.Content) == 0 {
					t.Errorf("%s: answer %s is %+v", where, status, r)
				}
			}
		}
	}
	for name, schema := range d.Components.Schemas {
		for field, property := range schema.Properties {
			if property.Description == "" {
				t.Errorf("%s.%s is not described", name, field)
			}
			if kinds := names(property.Type); len(property.Examples) == 0 && len(kinds) > 0 && kinds[0] != "array" {
				t.Errorf("%s.%s has no example", name, field)
			}
		}
	}
}

// What is described is what is sent: a field that is added to a type is added to its
// description, also one that is left out where it is empty.
func TestSchemasAreThoseOfTheValues(t *testing.T) {
	t.Parallel()
	schemas := readDocument(t).Components.Schemas
	for name, value := range map[string]any{
		"Job":          ops.Job{Job: &jobs.Job{}},
		"Request":      jobs.Request{},
		"Retry":        jobs.RetryPolicy{},
		"Answer":       jobs.Response{},
		"Waiting":      explain.Waiting{},
		"HistoryEntry": jobs.HistoryEntry{},
		"Batch":        ops.Batch{BatchStatus: &jobs.BatchStatus{}},
		"Breaker":      explain.Breaker{},
		"Budget":       breaker.Budget{},
		"Rate":         breaker.RateStatus{},
		"Limits":       ops.Limits{},
		"Limit":        breaker.LimitWindow{},
		"LearnedLimit": breaker.LearnedLimit{},
		"Incident":     breaker.Incident{},
		"BreakerEvent": breaker.Event{},
		"Pause":        jobs.Pause{},
		"Stats":        ops.Stats{},
		"Worker":       jobs.WorkerInfo{},
		"Unreachable":  jobs.UnreachableInfo{},
		"RefusedAlone": jobs.RefusedAlone{},
		"PageJob":      ops.Page[int]{},
		"ListWorker":   ops.List[int]{},
	} {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(raw, &sent); err != nil {
			t.Fatal(err)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(value)) {
			if name, options, _ := strings.Cut(f.Tag.Get("json"), ","); strings.HasPrefix(options, "omit") {
				sent[name] = nil
			}
		}
		want := slices.Sorted(maps.Keys(sent))
		if got := slices.Sorted(maps.Keys(schemas[name].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s is described with\n%v, sent with\n%v", name, got, want)
		}
	}
	statuses := make([]string, len(jobs.Statuses))
	for i, s := range jobs.Statuses {
		statuses[i] = string(s)
	}
	var described []string
	for _, v := range schemas["Job"].Properties["status"].Enum {
		described = append(described, v.(string))
	}
	if !slices.Equal(described, statuses) {
		t.Errorf("statuses %v, want %v", described, statuses)
	}
}

// A field that may be null is described so.
func TestFieldsThatMayBeNull(t *testing.T) {
	t.Parallel()
	known := build(Options{}).huma.OpenAPI().Components.Schemas
	for name, schema := range known.Map() {
		kind := known.TypeFromRef("#/components/schemas/" + name)
		if kind == nil || kind.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(kind) {
			field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			property := schema.Properties[field]
			if property == nil || strings.HasPrefix(options, "omit") || f.Type.Kind() != reflect.Pointer {
				continue
			}
			if property.Ref != "" || property.OneOf == nil && !property.Nullable {
				t.Errorf("%s.%s is a %s, which may be null; openapi.json says that it never is", name, field, f.Type)
			}
		}
	}
}

// The page shows the whole document, runs no script and asks nobody else.
func TestDocsPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := readDocument(t)
	page := b.get(t, "/docs", "As", "nobody").ok(t, http.StatusOK)
	if kind := page.header.Get("Content-Type"); kind != "text/html; charset=utf-8" {
		t.Errorf("Content-Type %q", kind)
	}
	for path, methods := range d.Paths {
		for _, op := range methods {
			for _, want := range []string{`<article id="` + op.OperationID + `">`, html.EscapeString(op.Summary), "<code>" + path + "</code>"} {
				if !strings.Contains(page.body, want) {
					t.Errorf("the page lacks %q", want)
				}
			}
		}
	}
	for name := range d.Components.Schemas {
		if !strings.Contains(page.body, `<article id="schema-`+name+`">`) {
			t.Errorf("the page lacks schema %s", name)
		}
	}
	for _, link := range regexp.MustCompile(`href="#([^"]*)"`).FindAllStringSubmatch(page.body, -1) {
		if !strings.Contains(page.body, `id="`+link[1]+`"`) {
			t.Errorf("link #%s leads nowhere", link[1])
		}
	}
	style := b.get(t, "/docs/style.css", "As", "nobody").ok(t, http.StatusOK)
	for _, bad := range []string{"<script", "javascript:", "http://", "https://", "url(", "@import", "style=", "onclick", "&lt;nil", "map["} {
		// The hosts of examples are nobody's.
		if strings.Contains(strings.ReplaceAll(page.body, "https://app.example.com", ""), bad) || strings.Contains(style.body, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	document := b.get(t, "/openapi.json", "As", "nobody").ok(t, http.StatusOK)
	if committed, err := os.ReadFile("openapi.json"); err != nil || document.body != string(committed) {
		t.Error("/openapi.json is not the document")
	}
}
