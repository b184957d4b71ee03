package dashboard

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/ops"
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
type broken struct{ error }

func (b *broken) Unwrap() error { return b.error }

// problemPage is the data of the page of a problem.
type problemPage struct {
	Title, Text, Hint string
	Status            int
	// Retries is true if the page reloads by itself.
	Retries bool
	// Detail is Redis's error, for operators.
	Detail string
}

func (d *Dashboard) showProblem(w http.ResponseWriter, r *http.Request, p problemPage) {
	d.render(w, r, "problem", show{title: p.Title, status: p.Status, live: p.Retries, away: p.Retries, data: p})
}

// fail answers with the page of a problem.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the viewer has left
	}
	if p, ok := errors.AsType[*problem](err); ok {
		d.showProblem(w, r, problemPage{Title: p.title, Text: p.text, Hint: p.hint, Status: p.status})
		return
	}
	if refusal, ok := errors.AsType[*access.RefusedError](err); ok {
		d.PageError(w, r, refusal.Status, refusal.Message)
		return
	}
	if b, ok := errors.AsType[*broken](err); ok {
		d.log.Error("dashboard: a page could not be made", "path", r.URL.Path, "error", b.error)
		d.showProblem(w, r, problemPage{
			Title: "Something is broken", Status: http.StatusInternalServerError,
			Text: "This page could not be rendered, which is a bug in Tidegate. See the log of tidegate api.",
		})
		return
	}
	d.log.Warn("dashboard: Redis could not be read", "path", r.URL.Path, "error", err)
	page := problemPage{
		Title: redisAway, Status: http.StatusServiceUnavailable, Retries: r.Method == http.MethodGet,
		Text: "Everything that this page shows is kept in Redis, which does not answer now. Workers finish the calls that they have begun, and an open breaker stays open until its time; nothing is lost. This page tries again by itself.",
		Hint: "tidegate health",
	}
	if !page.Retries {
		page.Text = "Redis does not answer, so it is not known whether all of this was done. Nothing was done twice. Check, and repeat it when Redis is back."
	}
	if d.viewerOf(r.Context()).Operate {
		page.Detail = err.Error()
	}
	w.Header().Set("Retry-After", "2")
	d.showProblem(w, r, page)
}

const redisAway = "Redis cannot be reached"

// PageError answers in place of a page that [access.Guard] refuses.
func (d *Dashboard) PageError(w http.ResponseWriter, r *http.Request, status int, message string) {
	webserver.SetHeaders(w.Header())
	title, ok := map[int]string{
		http.StatusServiceUnavailable: redisAway, http.StatusUnauthorized: "Not signed in", http.StatusTooManyRequests: "Too many attempts",
	}[status]
	if !ok {
		title = "Not allowed"
	}
	d.showProblem(w, r, problemPage{Title: title, Text: ops.Upper(message) + ".", Status: status, Retries: status == http.StatusServiceUnavailable})
}
