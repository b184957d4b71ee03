package api

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
)

//go:embed docs.html docs.css
var docsFiles embed.FS

// reference is the part of an OpenAPI document that the page shows.
type reference struct {
	Info struct {
		Title, Description string
	}
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]*refOperation
	Components struct {
		Schemas map[string]*refSchema
	}
}

type refOperation struct {
	OperationID          string
	Summary, Description string
	Tags                 []string
	Parameters           []refParam
	RequestBody          *struct {
		Required bool
		Content  map[string]refMedia
	}
	Responses map[string]refResponse

	Method, Path string `json:"-"`
}

type refParam struct {
	Name, In, Description string
	Required              bool
	Schema                *refSchema
}

type refMedia struct {
	Schema   *refSchema
	Example  any
	Examples map[string]struct{ Value any }
}

type refResponse struct {
	Description string
	Content     map[string]refMedia
}

type refSchema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Format      string
	Enum        []any
	Pattern     string
	Examples    []any
	Default     any
	Minimum     *float64
	Maximum     *float64
	OneOf       []refSchema
	Items       *refSchema
	Properties  map[string]*refSchema
	Required    []string

	AdditionalProperties any
}

// word is a piece of text: plain, of code, strong, or a link to a schema.
type word struct{ Kind, Text string }

// words parses the markdown of the descriptions: `code` and **strong**.
func words(text string) []word {
	var out []word
	for text != "" {
		code, strong := strings.Index(text, "`"), strings.Index(text, "**")
		mark, kind, at := "`", "code", code
		if strong >= 0 && (code < 0 || strong < code) {
			mark, kind, at = "**", "strong", strong
		}
		if at < 0 {
			return append(out, word{"", text})
		}
		inside, rest, closed := strings.Cut(text[at+len(mark):], mark)
		if !closed {
			return append(out, word{"", text})
		}
		out = append(out, word{"", text[:at]}, word{kind, inside})
		text = rest
	}
	return out
}

func paragraphs(text string) []string { return strings.Split(text, "\n\n") }

// kind describes the type of a value, with links to schemas.
func kind(s *refSchema) []word {
	if s == nil {
		return nil
	}
	if s.Ref != "" {
		return []word{{"link", s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]}}
	}
	var out []word
	for i := range s.OneOf {
		if i > 0 {
			out = append(out, word{"", " or "})
		}
		out = append(out, kind(&s.OneOf[i])...)
	}
	if out != nil {
		return out
	}
	types := names(s.Type)
	switch {
	case len(types) == 0:
		return []word{{"", "any"}}
	case types[0] == "array":
		return append([]word{{"", "array of "}}, kind(s.Items)...)
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprint(v)
		}
		return []word{{"", strings.Join(values, ", ")}}
	}
	text := strings.Join(types, " or ")
	if s.Format == "date-time" {
		text = strings.Replace(text, "string", "time", 1)
	}
	return []word{{"", text}}
}

// names are the types that a schema allows.
func names(of any) []string {
	switch t := of.(type) {
	case string:
		return []string{t}
	case []any:
		out := make([]string, len(t))
		for i, v := range t {
			out[i] = fmt.Sprint(v)
		}
		return out
	}
	return nil
}

// example formats a value.
func example(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return ""
	}
	return string(b)
}

// groups are the operations by their tags, in the document's order, and by path.
func (r *reference) groups() []refGroup {
	byTag := map[string][]*refOperation{}
	for _, path := range slices.Sorted(maps.Keys(r.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(r.Paths[path])) {
			op := r.Paths[path][method]
			op.Method, op.Path = strings.ToUpper(method), path
			for _, tag := range op.Tags {
				byTag[tag] = append(byTag[tag], op)
			}
		}
	}
	out := make([]refGroup, 0, len(r.Tags))
	for _, tag := range r.Tags {
		out = append(out, refGroup{tag.Name, tag.Description, byTag[tag.Name]})
	}
	return out
}

type refGroup struct {
	Name, Description string
	Operations        []*refOperation
}

// docsPage is the page that shows a document. It needs no script.
func docsPage(document []byte) ([]byte, error) {
	var r reference
	if err := json.Unmarshal(document, &r); err != nil {
		return nil, fmt.Errorf("api: read the OpenAPI document: %w", err)
	}
	page, err := template.New("docs.html").Funcs(template.FuncMap{
		"words": words, "paragraphs": paragraphs, "kind": kind, "example": example,
		"required": func(s *refSchema, name string) bool { return slices.Contains(s.Required, name) },
		"first": func(of []any) string {
			if len(of) == 0 {
				return ""
			}
			return example(of[0])
		},
		"isError": func(status string) bool { return status >= "400" },
	}).ParseFS(docsFiles, "docs.html")
	if err != nil {
		return nil, fmt.Errorf("api: read the page's template: %w", err)
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{"Doc": &r, "Groups": r.groups()})
	if err != nil {
		return nil, fmt.Errorf("api: write the page: %w", err)
	}
	return out.Bytes(), nil
}

// docsOperations are the page and its style.
func (a *api) docsOperations() {
	page, err := docsPage(a.document)
	if err != nil {
		panic(err) // only constants, and tested
	}
	style, err := docsFiles.ReadFile("docs.css")
	if err != nil {
		panic(err)
	}
	serve := func(path, kind string, data []byte) {
		a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(data)
		})
	}
	serve("/docs", "text/html; charset=utf-8", page)
	serve("/docs/style.css", "text/css; charset=utf-8", style)
}
