package dashboard

import (
	"errors"
	"net/http"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/webserver"
)

// mostForm bounds what a form may send, in bytes.
const mostForm = 256 << 10

// loginPage is the data of the login.
type loginPage struct {
	Next, Error string
}

func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) error {
	next := access.LocalPath(r.FormValue("next"))
	if d.viewerOf(r.Context()).Read {
		redirect(w, r, next)
		return nil
	}
	d.render(w, r, "login", show{title: "Sign in", data: loginPage{Next: next}})
	return nil
}

func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		return wrong("The form cannot be read.")
	}
	// Only from the form: URLs are logged.
	next := access.LocalPath(r.PostFormValue("next"))
	err := d.guard.SignIn(w, r, r.PostFormValue("token"))
	if err == nil {
		redirect(w, r, next)
		return nil
	}
	page := loginPage{Next: next, Error: "Signing in has failed."}
	status := http.StatusInternalServerError
	if refusal, ok := errors.AsType[*access.RefusedError](err); ok {
		page.Error, status = upper(refusal.Message)+".", refusal.Status
		if refusal.RetryAfter > 0 {
			webserver.RetryAfter(w.Header(), refusal.RetryAfter)
		}
	}
	d.render(w, r, "login", show{title: "Sign in", status: status, data: page})
	return nil
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) error {
	if err := d.guard.SignOut(w, r); err != nil {
		if refusal, ok := errors.AsType[*access.RefusedError](err); ok {
			d.PageError(w, r, refusal.Status, refusal.Message)
			return nil
		}
		return err
	}
	redirect(w, r, "/login")
	return nil
}
