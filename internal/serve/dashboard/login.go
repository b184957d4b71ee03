package dashboard

import (
	"net/http"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/view/ops"
)

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
	refusal := d.guard.SignIn(w, r, r.PostFormValue("token"))
	if refusal == nil {
		redirect(w, r, next)
		return nil
	}
	webserver.RetryAfter(w.Header(), refusal.RetryAfter)
	d.render(w, r, "login", show{title: "Sign in", status: refusal.Status, data: loginPage{Next: next, Error: ops.Upper(refusal.Message) + "."}})
	return nil
}

func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) error {
	if refusal := d.guard.SignOut(w, r); refusal != nil {
		return refusal
	}
	redirect(w, r, "/login")
	return nil
}
