package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	doc := build(Options{}).document
	const page = "../../../docs/api.md"
	for path, want := range map[string][]byte{"openapi.json": doc, page: withOperations(t, page, doc)} {
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		committed, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, committed) {
			t.Errorf("%s is not what the code says; run: go generate ./internal/serve/api", path)
		}
	}
	served := newBench(t).get(t, "/openapi.json", "As", "nobody").ok(t, http.StatusOK)
	if served.body != string(doc) {
		t.Error("/openapi.json is not the document")
	}
}

// withOperations returns a page with a table of the document's operations between its marks.
func withOperations(t *testing.T, path string, doc []byte) []byte {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- begin operations -->\n", "<!-- end operations -->"
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the operations", path)
	}
	var d described
	if err := json.Unmarshal(doc, &d); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| call | what it does | scope |\n|---|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			op := d.Paths[path][method]
			scopes := []string{}
			for _, needs := range op.Security {
				for _, of := range needs {
					scopes = append(scopes, of...)
				}
			}
			fmt.Fprintf(&table, "| `%s %s` | %s | %s |\n", strings.ToUpper(method), path, op.Summary, strings.Join(scopes, ", "))
		}
	}
	return []byte(before + begin + table.String() + end + after)
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

// Each part of the document has a description.
func TestDocumentIsComplete(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	ids := map[string]bool{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			where := method + " " + path
			if op.Summary == "" || op.Description == "" || op.OperationID == "" || ids[op.OperationID] || len(op.Security) != 1 && path != CompletionsPath+"{token}" {
				t.Errorf("%s: %+v", where, op)
			}
			ids[op.OperationID] = true
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s: parameter %s is not described", where, p.Name)
				}
			}
			want := []string{"422", "429", "500", "503"}
			if len(op.Security) > 0 {
				want = append(want, "401", "403")
			}
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
			types, _ := property.Type.([]any)
			if one, ok := property.Type.(string); ok {
				types = []any{one}
			}
			if len(property.Examples) == 0 && len(types) > 0 && types[0] != "array" {
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
