package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/webserver"
)

// problem is a response in place of the requested page.
type problem struct {
	status int
	title  string
	text   string // a sentence or two: what is wrong and what to do
	hint   string // a command, "" for none
}

func (p *problem) Error() string { return p.title + ": " + p.text }

// Lasting says that no older page is shown in its place; see [ops.Lasting].
func (p *problem) Lasting() {}

var errNoAction = wrong("There is no such action.")

// absent is a 404.
func absent(title, text string) *problem {
	return &problem{status: http.StatusNotFound, title: title, text: text}
}

// wrong is a response to invalid input.
func wrong(format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, title: "Invalid input", text: fmt.Sprintf(format, args...)}
}

// refused is a response to a viewer without the scope.
func refused(scope string) *problem {
	return &problem{
		status: http.StatusForbidden, title: "Not allowed",
		text: "Your token does not have the scope “" + scope + "”. Sign in with a token that has it.",
	}
}

// broken is an internal error, as opposed to an outage of Redis.
type broken struct{ err error }

func (b *broken) Error() string { return b.err.Error() }
func (b *broken) Unwrap() error { return b.err }

// problemPage is the data of the page of a problem.
type problemPage struct {
	Title, Text, Hint string
	Status            int
	// Retries is true if the page reloads by itself.
	Retries bool
	// Detail is Redis's error, for operators.
	Detail string
}

// fail answers with the page of a problem.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the viewer has left
	}
	v := d.viewerOf(r.Context())
	if p, ok := errors.AsType[*problem](err); ok {
		d.render(w, r, "problem", show{title: p.title, status: p.status, data: problemPage{Title: p.title, Text: p.text, Hint: p.hint, Status: p.status}})
		return
	}
	if refusal, ok := errors.AsType[*access.RefusedError](err); ok {
		d.PageError(w, r, refusal.Status, refusal.Message)
		return
	}
	if b, ok := errors.AsType[*broken](err); ok {
		d.log.Error("dashboard: a page could not be made", "path", r.URL.Path, "error", b.err)
		d.render(w, r, "problem", show{title: "Something is broken", status: http.StatusInternalServerError, data: problemPage{
			Title: "Something is broken", Status: http.StatusInternalServerError,
			Text: "This page could not be rendered, which is a bug in Tidegate. See the log of tidegate api.",
		}})
		return
	}
	d.log.Warn("dashboard: Redis could not be read", "path", r.URL.Path, "error", err)
	page := problemPage{
		Title: "Redis cannot be reached", Status: http.StatusServiceUnavailable, Retries: r.Method == http.MethodGet,
		Text: "Everything that this page shows is kept in Redis, which does not answer now. Workers finish the calls that they have begun, and an open breaker stays open until its time; nothing is lost. This page tries again by itself.",
		Hint: "tidegate health",
	}
	if !page.Retries {
		page.Text = "Redis does not answer, so it is not known whether all of this was done. Nothing was done twice. Check, and repeat it when Redis is back."
	}
	if v.Operate {
		page.Detail = err.Error()
	}
	w.Header().Set("Retry-After", "2")
	d.render(w, r, "problem", show{title: page.Title, status: page.Status, live: page.Retries, away: page.Retries, data: page})
}

// PageError answers in place of a page that [access.Guard] refuses.
func (d *Dashboard) PageError(w http.ResponseWriter, r *http.Request, status int, message string) {
	webserver.SetHeaders(w.Header())
	title := "Not allowed"
	switch status {
	case http.StatusServiceUnavailable:
		title = "Redis cannot be reached"
	case http.StatusUnauthorized:
		title = "Not signed in"
	case http.StatusTooManyRequests:
		title = "Too many attempts"
	}
	d.render(w, r, "problem", show{title: title, status: status, live: status == http.StatusServiceUnavailable, away: status == http.StatusServiceUnavailable, data: problemPage{
		Title: title, Text: upper(message) + ".", Status: status, Retries: status == http.StatusServiceUnavailable,
	}})
}
