package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tidegate/tidegate/internal/text"
)

// outputFlag is part of every command that prints data.
type outputFlag struct {
	Output string `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"Form of the output: text for people, json for programs (one JSON document)."`
}

func (o outputFlag) json() bool { return o.Output == "json" }

// page is the form of lists in JSON.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// printJSON writes one JSON document: indented on a terminal, else on one line.
func (p *Process) printJSON(doc any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if isTerminal(p.Stdout) {
		enc.SetIndent("", "  ")
	}
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	return p.write(text.JSON(b.Bytes()))
}

// show writes a document as JSON, or for people the rows that fill adds.
func (o outputFlag) show(p *Process, doc any, fill func(*rows)) error {
	if o.json() {
		return p.printJSON(doc)
	}
	r := newRows()
	fill(r)
	return r.print(p)
}

// say writes a document as JSON, or for people a text.
func (o outputFlag) say(p *Process, doc any, format string, args ...any) error {
	if o.json() {
		return p.printJSON(doc)
	}
	return p.write(fmt.Appendf(nil, format, args...))
}

// write writes to stdout.
func (p *Process) write(b []byte) error {
	if _, err := p.Stdout.Write(b); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// warn writes a line to stderr that stops nothing.
func (p *Process) warn(problem string) {
	if p.jsonErrors {
		p.notify("warning", text.OneLine(problem))
		return
	}
	fmt.Fprintln(p.Stderr, "tidegate: warning: "+text.OneLine(problem))
}

// note writes a line to stderr that says what goes on.
func (p *Process) note(line string) {
	if p.jsonErrors {
		p.notify("note", text.OneLine(line))
		return
	}
	fmt.Fprintln(p.Stderr, text.OneLine(line))
}

// notify writes a JSON document of one field to stderr, on one line.
func (p *Process) notify(field, value string) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(map[string]string{field: value}); err == nil { // texts always are
		_, _ = p.Stderr.Write(text.JSON(b.Bytes()))
	}
}

// asksForJSON reports whether arguments hold -o json in one of its forms. The arguments may be
// wrong, so that there is no command to ask.
func asksForJSON(args []string) bool {
	last := ""
	for i, arg := range args {
		if arg == "--" {
			break
		}
		switch {
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			last = args[i+1]
		case strings.HasPrefix(arg, "--output="):
			last = strings.TrimPrefix(arg, "--output=")
		case strings.HasPrefix(arg, "-o"):
			last = strings.TrimPrefix(strings.TrimPrefix(arg, "-o"), "=")
		}
	}
	return last == "json"
}

// rows collects name and value pairs, or the lines of a table.
type rows struct {
	b   bytes.Buffer
	tab *tabwriter.Writer
}

func newRows() *rows {
	r := &rows{}
	r.tab = tabwriter.NewWriter(&r.b, 0, 0, 2, ' ', 0)
	return r
}

// add appends a line; what comes from outside is cleaned.
func (r *rows) add(cells ...string) {
	for i, c := range cells {
		cells[i] = text.OneLine(c)
	}
	fmt.Fprintln(r.tab, strings.Join(cells, "\t"))
}

// addIf appends a line unless its value is empty.
func (r *rows) addIf(name, value string) {
	if value != "" {
		r.add(name, value)
	}
}

// bytes returns what was added, aligned and without spaces at the ends of lines.
func (r *rows) bytes() ([]byte, error) {
	if err := r.tab.Flush(); err != nil {
		return nil, fmt.Errorf("lay the output out: %w", err)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(r.b.Bytes()) {
		out.Write(bytes.TrimRight(line, " \n"))
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

func (r *rows) print(p *Process) error { return r.printWith(p, "") }

// printWith prints the rows, and the lines after them.
func (r *rows) printWith(p *Process, lines string) error {
	b, err := r.bytes()
	if err != nil {
		return err
	}
	return p.write(append(b, lines...))
}

// clip shortens a text from elsewhere to one line of n characters.
func clip(s string, n int) string { return text.Cut(text.OneLine(s), n) }
