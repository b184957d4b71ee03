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

// object is an object of the OpenAPI document.
type object = map[string]any

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

// kind describes the type of a value by its schema, with links to schemas.
func kind(s object) []word {
	if ref, ok := s["$ref"].(string); ok {
		return []word{{"link", ref[strings.LastIndexByte(ref, '/')+1:]}}
	}
	var out []word
	some, _ := s["oneOf"].([]any)
	for i, one := range some {
		if i > 0 {
			out = append(out, word{"", " or "})
		}
		out = append(out, kind(one.(object))...)
	}
	if out != nil || s == nil {
		return out
	}
	types := names(s["type"])
	switch {
	case len(types) == 0:
		return []word{{"", "any"}}
	case types[0] == "array":
		items, _ := s["items"].(object)
		return append([]word{{"", "array of "}}, kind(items)...)
	case s["enum"] != nil:
		return []word{{"", strings.Join(names(s["enum"]), ", ")}}
	}
	text := strings.Join(types, " or ")
	if s["format"] == "date-time" {
		text = strings.Replace(text, "string", "time", 1)
	}
	return []word{{"", text}}
}

// names are the types or values that a schema allows.
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

// group is the operations with one tag.
type group struct {
	Tag        any
	Operations []object
}

// groups are the operations by their tags, in the document's order, and by path.
func groups(doc object) (out []group) {
	byTag := map[any][]object{}
	paths := doc["paths"].(object)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		methods := paths[path].(object)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			op := methods[method].(object)
			op["method"], op["path"] = strings.ToUpper(method), path
			for _, tag := range op["tags"].([]any) {
				byTag[tag] = append(byTag[tag], op)
			}
		}
	}
	for _, tag := range doc["tags"].([]any) {
		out = append(out, group{tag, byTag[tag.(object)["name"]]})
	}
	return out
}

// docsPage is the page that shows a document. It needs no script.
func docsPage(document []byte) ([]byte, error) {
	var doc object
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("api: read the OpenAPI document: %w", err)
	}
	page, err := template.New("docs.html").Funcs(template.FuncMap{
		"words": words, "paragraphs": paragraphs, "kind": kind, "example": example,
		"required": func(s object, name string) bool {
			all, _ := s["required"].([]any)
			return slices.Contains(all, any(name))
		},
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
	if err = page.Execute(&out, object{"doc": doc, "groups": groups(doc)}); err != nil {
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
