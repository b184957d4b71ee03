package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// outputFlag is part of every command that prints data.
type outputFlag struct {
	Output string `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"Form of the output: text for people, json for programs (one JSON document)."`
}

func (o outputFlag) json() bool { return o.Output == "json" }

// printJSON writes one JSON document: indented on a terminal, else on one line.
func (p *Process) printJSON(doc any) error {
	b, err := encode(doc, isTerminal(p.Stdout))
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	return p.write(b)
}

// encode encodes a JSON document without control characters.
func encode(doc any, indent bool) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	err := enc.Encode(doc)
	return text.JSON(b.Bytes()), err
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

// table prints lists for people: a line of column heads and one for each item.
type table[T any] struct {
	none string   // in place of a table without items
	head []string // of the columns
	row  func(item T) []string
	rest string // lines after the table
}

// print writes a page as JSON, or for people its table.
func (t table[T]) print(p *Process, o outputFlag, page ops.Page[T]) error {
	switch {
	case o.json():
		return p.printJSON(page)
	case len(page.Items) == 0 && t.none != "":
		return p.write([]byte(t.none + "\n"))
	}
	r := newRows()
	r.add(t.head...)
	for _, item := range page.Items {
		r.add(t.row(item)...)
	}
	r.rest = t.rest
	return r.print(p)
}

// write writes to stdout.
func (p *Process) write(b []byte) error {
	if _, err := p.Stdout.Write(b); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// sharedOutput returns p with an output to which several goroutines may write: incidents are printed as they happen.
func (p *Process) sharedOutput() *Process {
	own := *p
	own.Stdout = &sharedWriter{w: p.Stdout}
	return &own
}

type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b) //nolint:wrapcheck // the caller wraps it
}

// warn writes a line to stderr about what stops nothing.
func (p *Process) warn(problem string) {
	p.notify("warning", "tidegate: warning: ", text.OneLine(problem))
}

// note writes a line to stderr about what goes on.
func (p *Process) note(line string) { p.notify("note", "", text.OneLine(line)) }

// notify writes a line to stderr: a prefix and the text, or a JSON document of one field.
func (p *Process) notify(field, prefix, line string) {
	if !p.jsonErrors {
		fmt.Fprintln(p.Stderr, prefix+line)
		return
	}
	if b, err := encode(map[string]string{field: line}, false); err == nil { // texts always are
		_, _ = p.Stderr.Write(b)
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
	b    bytes.Buffer
	tab  *tabwriter.Writer
	rest string // lines after them
}

func newRows() *rows {
	r := &rows{}
	r.tab = tabwriter.NewWriter(&r.b, 0, 0, 2, ' ', 0)
	return r
}

// add appends a line; text from outside is cleaned.
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

// print writes the lines, aligned and without spaces at their ends.
func (r *rows) print(p *Process) error {
	if err := r.tab.Flush(); err != nil {
		return fmt.Errorf("lay the output out: %w", err)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(r.b.Bytes()) {
		out.Write(bytes.TrimRight(line, " \n"))
		out.WriteByte('\n')
	}
	out.WriteString(r.rest)
	return p.write(out.Bytes())
}

// clip shortens a text from elsewhere to one line of n characters.
func clip(s string, n int) string { return text.Cut(text.OneLine(s), n) }

// dash is a text, or "-" for an empty cell of a table.
func dash(s string) string { return cmp.Or(s, "-") }

// plural counts things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// joinNames lists statuses and the like in a text.
func joinNames[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}

// countsOf lists the statuses that jobs have, with how many: "2 failed, 1 expired".
func countsOf(counts map[jobs.Status]int, leaveOut ...jobs.Status) (texts, statuses []string) {
	for _, status := range jobs.Statuses {
		if n := counts[status]; n > 0 && !slices.Contains(leaveOut, status) {
			texts = append(texts, fmt.Sprintf("%d %s", n, status))
			statuses = append(statuses, string(status))
		}
	}
	return texts, statuses
}
