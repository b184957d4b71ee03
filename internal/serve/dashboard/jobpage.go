package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// mostShown bounds a payload, and the body of a response, on a page, in bytes.
const mostShown = 32 << 10

// jobPage is the data of one job.
type jobPage struct {
	*jobs.Job
	Wait        *wait
	ETA         *jobs.ETA
	History     []historyRow
	Graph       template.HTML
	payload     []byte // the first mostShown bytes
	ResponseCut int    // bytes of the response's body that are not shown
	PayloadSize int
	output      []byte // likewise
	OutputSize  int
	Headers     [][2]string
	Actions     []ops.Act
	// CLI is the id quoted for a shell.
	CLI string
}

// historyRow is a version of a job, or a gap.
type historyRow struct {
	jobs.HistoryEntry
	// Gap is the number of versions before it that are not stored.
	Gap int
	// Class is the CSS class.
	Class string
}

func (d *Dashboard) jobPage(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	return cached(d, w, r, "job", id, titled[*jobPage]("Job "+id), func(ctx context.Context) (*jobPage, error) { return d.readJob(ctx, id) })
}

func noJob(id string) *problem {
	p := absent("There is no such job", fmt.Sprintf("No job has the id “%s”: it never existed, or its retention has ended. Completed jobs are kept for a day, failed ones for 90, unless configured otherwise.", text.Cut(id, 140)))
	p.hint = "tidegate list"
	return p
}

func (d *Dashboard) readJob(ctx context.Context, id string) (*jobPage, error) {
	if !jobs.ValidName(id) {
		return nil, noJob(id)
	}
	found, err := d.ops.Job(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, noJob(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	job := found.Job
	p := &jobPage{Job: job, CLI: id, Wait: waitOf(found), ETA: found.ETA, Actions: slices.DeleteFunc(slices.Clone(ops.Acts), func(a ops.Act) bool { return !a.OfferedFor(job) })}
	history, err := d.ops.History(ctx, id)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return nil, fmt.Errorf("read the history of %s: %w", id, err)
	}
	p.History = historyRows(history.Items)
	// The page is cached; do not keep the whole payload and output.
	p.payload, p.PayloadSize = bytes.Clone(job.Payload[:min(len(job.Payload), mostShown)]), len(job.Payload)
	p.output, p.OutputSize = bytes.Clone(job.Output[:min(len(job.Output), mostShown)]), len(job.Output)
	job.Payload, job.Output, job.Parents = nil, nil, nil
	if r := job.Response; r != nil {
		whole := len(r.Body)
		r.Body = strings.Clone(text.Head(r.Body, mostShown))
		p.ResponseCut = whole - len(r.Body)
	}
	for _, name := range slices.Sorted(maps.Keys(job.Request.Headers)) {
		p.Headers = append(p.Headers, [2]string{name, job.Request.Headers[name]})
	}
	return p, d.dependencies(ctx, p)
}

// historyRows are the newest first.
func historyRows(entries []jobs.HistoryEntry) []historyRow {
	var out []historyRow
	last := 0
	for _, e := range entries {
		row := historyRow{HistoryEntry: e, Class: ops.StatusWords(e.Status).Class}
		if e.Version > last+1 {
			row.Gap = e.Version - last - 1
		}
		last = e.Version
		out = append(out, row)
	}
	slices.Reverse(out)
	return out
}

// Payload returns the shown part of the payload, indented if that is not too long. Templates call
// it for viewers with the scope payloads.
func (p *jobPage) Payload() string { return readable(p.payload, p.PayloadCut() > 0) }

// PayloadCut is the number of bytes of the payload that are not shown.
func (p *jobPage) PayloadCut() int { return p.PayloadSize - len(p.payload) }

// Output is to the output what Payload is to the payload.
func (p *jobPage) Output() string { return readable(p.output, p.OutputCut() > 0) }

// OutputCut is the number of bytes of the output that are not shown.
func (p *jobPage) OutputCut() int { return p.OutputSize - len(p.output) }

// readable indents JSON, unless it is cut or that would be too long.
func readable(raw []byte, cut bool) string {
	var b bytes.Buffer
	switch {
	case cut:
		return strings.ToValidUTF8(string(raw), "")
	case indentedSize(raw) <= 2*mostShown && json.Indent(&b, raw, "", "  ") == nil:
		return b.String()
	}
	return string(raw)
}

// indentedSize bounds the size of JSON indented by two spaces, in bytes. It can grow with the
// square of the depth, so it is computed before indenting.
func indentedSize(raw []byte) int {
	size, depth, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		size++
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
			size++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			size += 1 + 2*depth
		case c == '}', c == ']':
			depth--
			size += 1 + 2*depth
		case c == ',':
			size += 1 + 2*depth
		case c == ':':
			size++
		}
	}
	return size
}
