package chart

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
)

//go:embed *.svg.tmpl
var files embed.FS

var templates = template.Must(template.ParseFS(files, "*.svg.tmpl"))

// render executes a template, which escapes values.
func render(name string, picture any) (template.HTML, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name+".svg.tmpl", picture); err != nil {
		return "", fmt.Errorf("chart: %w", err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // made by html/template
}
