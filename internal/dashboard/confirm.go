package dashboard

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// mostReason is the longest reason, in characters, as of the commands.
const mostReason = 500

// confirmPage asks for confirmation of an action.
type confirmPage struct {
	// Title is the question; Lead describes its subject, Points its consequences.
	Title, Lead string
	Points      []string
	// Action is the URL of the form, Fields its hidden fields.
	Action string
	Fields []field
	// Reason is what was given so far; AskReason asks for it.
	Reason    string
	AskReason bool
	// Submit is the text of the button, "" for none; Danger colours it.
	Submit string
	Danger bool
	// Back is the link to cancel.
	Back string
}

// field is a hidden field of a form.
type field struct{ Name, Value string }

func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request, p confirmPage) {
	p.Fields = append(p.Fields, field{"confirm", "1"}, field{"back", p.Back})
	d.render(w, r, "confirm", show{title: p.Title, data: p})
}

// confirmed reports whether the form was sent by the page that asks.
func confirmed(r *http.Request) bool { return r.PostFormValue("confirm") == "1" }

// form reads the form of a viewer with the scope operate, and the reason in it.
func (d *Dashboard) form(w http.ResponseWriter, r *http.Request) (reason string, err error) {
	if !d.viewerOf(r.Context()).Operate {
		return "", refused("operate")
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	if err := r.ParseForm(); err != nil {
		return "", wrong("The form cannot be read, or is too long.")
	}
	reason = strings.TrimSpace(r.PostFormValue("reason"))
	if n := utf8.RuneCountInString(reason); n > mostReason {
		return "", wrong("The reason has %d characters; the limit is %d.", n, mostReason)
	}
	return reason, nil
}
