package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
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
	return p.write(escapeControls(b.Bytes()))
}

// write writes to stdout.
func (p *Process) write(b []byte) error {
	if _, err := p.Stdout.Write(b); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// warn writes a line to stderr that stops nothing.
func (p *Process) warn(text string) {
	fmt.Fprintln(p.Stderr, "tidegate: warning: "+clean(text))
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
		cells[i] = clean(c)
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

func (r *rows) print(p *Process) error {
	b, err := r.bytes()
	if err != nil {
		return err
	}
	return p.write(b)
}

// dangerous reports whether a terminal would act on the character, or write the
// text after it in another direction.
func dangerous(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// clean makes a text from anywhere one line that a terminal only shows.
func clean(s string) string {
	safe := true
	for _, r := range s {
		if r == utf8.RuneError || dangerous(r) {
			safe = false
			break
		}
	}
	if safe {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r', r == '\u2028', r == '\u2029':
			return ' '
		case dangerous(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// clip shortens a cleaned text to n characters.
func clip(s string, n int) string {
	s = clean(s)
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// escapeControls writes the dangerous characters of a JSON document as \u
// escapes. They can only be within strings, so the document means the same.
func escapeControls(doc []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		if dangerous(r) && r != '\n' {
			out = append(out, doc[done:i]...)
			out = fmt.Appendf(out, `\u%04x`, r)
			done = i + size
		}
		i += size
	}
	if out == nil {
		return doc
	}
	return append(out, doc[done:]...)
}
