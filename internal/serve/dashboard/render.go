package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/view/ops"
)

//go:embed templates
var templateFiles embed.FS

// partHeader requests only the changing part of a page, without a redirect to the login; see
// access.Guard.
const partHeader = "X-Requested-With"

// pages are the templates: each page with the layout and the partials.
type pages struct {
	byName map[string]*template.Template
}

func loadPages(d *Dashboard) (*pages, error) {
	base, err := template.New("").Funcs(d.funcs()).ParseFS(templateFiles, "templates/layout.html", "templates/partials.html", "templates/forms.html")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	files, err := templateFiles.ReadDir("templates/pages")
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	p := &pages{byName: map[string]*template.Template{}}
	for _, f := range files {
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(templateFiles, path.Join("templates/pages", f.Name()))
		}
		if err != nil {
			return nil, fmt.Errorf("templates: %w", err)
		}
		p.byName[strings.TrimSuffix(f.Name(), ".html")] = t
	}
	return p, nil
}

// part renders a template of a page that shows the same to all viewers.
func (p *pages) part(page, name string, data any) (template.HTML, error) {
	var b bytes.Buffer
	if err := p.byName[page].ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("render: %w", err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // html/template has escaped it
}

// show is the input of a rendered page.
type show struct {
	title  string
	status int  // 0: 200
	live   bool // the script keeps it up to date
	hold   bool // … unless something on it is selected
	data   any
	since  time.Time // of the data, if Redis is away now
	away   bool      // Redis is away, and there is no data
}

// document is the data of the layout template.
type document struct {
	Title   string
	Section string
	Path    string
	Query   string
	Viewer  viewer
	Theme   string
	Version string
	Now     time.Time
	Live    bool
	Hold    bool
	// Stale is when the data was read, if Redis has been Away since.
	Stale time.Time
	Away  bool
	// Problem says that Redis records nothing, so that the page may be wrong; "" if it does.
	Problem string
	Flash   *flash
	Data    any
}

// render writes a page, or its changing part if the script requested it.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, name string, s show) {
	part := r.Header.Get(partHeader) != ""
	doc := document{
		Title: s.title, Section: section(r.URL.Path), Path: r.URL.Path, Query: r.URL.RawQuery, Viewer: d.viewerOf(r.Context()),
		Theme: theme(r), Version: d.version, Now: d.now(), Live: s.live, Hold: s.hold, Stale: s.since, Away: s.away || !s.since.IsZero(), Data: s.data,
	}
	if doc.Viewer.Read && !doc.Away {
		doc.Problem = d.ops.RecordProblem(r.Context())
	}
	if !part {
		doc.Flash = takeFlash(w, r)
	}
	entry := "page"
	if part {
		entry = "part"
	}
	var b bytes.Buffer
	if err := d.pages.byName[name].ExecuteTemplate(&b, entry, doc); err != nil {
		d.log.Error("dashboard: a page could not be rendered", "page", name, "error", err)
		http.Error(w, "this page could not be rendered; see the log of tidegate api", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Cookie, "+partHeader+", Accept-Encoding")
	s.status = cmp.Or(s.status, http.StatusOK)
	send(w, r, s.status, []byte(text.Printable(b.String()))) // after html/template has escaped it
}

// cached renders a page of data that is read for all viewers, at most once a second. The key, of any length,
// is what the data depend on.
func cached[T any](d *Dashboard, w http.ResponseWriter, r *http.Request, page, key string, title func(T) string, read func(context.Context) (T, error)) error {
	sum := sha256.Sum256([]byte(key))
	a, err := ops.Read(r.Context(), d.cache, "page "+page+" "+string(sum[:]), func(ctx context.Context) (T, error) {
		if err := d.setClock(ctx); err != nil {
			var none T
			return none, err
		}
		return read(ctx)
	})
	if err != nil {
		return err //nolint:wrapcheck // it is read's
	}
	d.render(w, r, page, show{title: title(a.Value), live: true, hold: page == "jobs", data: a.Value, since: a.Since})
	return nil
}

// titled is the title of all pages of a kind.
func titled[T any](title string) func(T) string { return func(T) string { return title } }

// section is the entry of the navigation that a path belongs to.
func section(p string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if first == "breakers" {
		return "destinations"
	}
	return first
}
