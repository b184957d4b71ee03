package dashboard

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/text"
)

// actOnBreaker trips, forces or resets a breaker, or forgets its limits, after confirmation.
func (d *Dashboard) actOnBreaker(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	reason, err := d.form(w, r)
	if err != nil {
		return err
	}
	if _, _, err := d.parseBreaker(r.Context(), name); err != nil {
		return err
	}
	length, words, err := lengthOf(r.PostFormValue("for"))
	if err != nil {
		return err
	}
	what := r.PostFormValue("action")
	if !slices.Contains([]string{"trip", "reset", "force", "forget"}, what) {
		return wrong("There is no such action.")
	}
	if !confirmed(r) {
		return d.askAboutBreaker(w, r, name, what, words, reason)
	}
	by := d.viewerOf(r.Context()).By
	var text string
	audited := what + " breaker"
	switch what {
	case "trip":
		_, err = d.ns.Trip(r.Context(), d.rdb, name, breaker.TripOptions{For: length, Reason: reason, By: by})
		text = "Opened " + name + " " + words + "."
	case "force":
		_, err = d.ns.ForceClosed(r.Context(), d.rdb, name, breaker.ForceOptions{For: length, Reason: reason, By: by})
		text = "Keeping " + name + " closed " + words + "."
	case "forget":
		var forgotten breaker.Limits
		forgotten, err = d.ns.ForgetLimits(r.Context(), d.rdb, name, by)
		text = explain.Forgotten(forgotten) + "."
		audited, words = "forget limits", ""
	default:
		_, err = d.ns.Reset(r.Context(), d.rdb, name, by)
		text = "Reset " + name + ": it is closed."
	}
	attrs := []slog.Attr{slog.String("target", name)}
	if words != "" {
		attrs = append(attrs, slog.String("for", words))
	}
	d.audit(r.Context(), audited, append(attrs, result(err), slog.String("reason", reason))...)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	d.acted()
	setFlash(w, flash{Text: text})
	redirect(w, r, "/breakers/"+name)
	return nil
}

// lengthOf parses one of the selectable durations, and returns its wording.
func lengthOf(value string) (time.Duration, string, error) {
	i := slices.IndexFunc(tripLengths, func(l tripLength) bool { return l.Value == value })
	if i < 0 {
		return 0, "", wrong("“%s” is not one of the times on offer.", text.Cut(value, 20))
	}
	if value == "" {
		return 0, tripLengths[i].Text, nil
	}
	length, err := time.ParseDuration(value)
	if err != nil {
		return 0, "", &broken{err} // all values are durations
	}
	return length, "for " + tripLengths[i].Text, nil
}

func result(err error) slog.Attr {
	if err != nil {
		return slog.String("result", "failed")
	}
	return slog.String("result", "ok")
}

// askAboutBreaker explains the consequences, and asks for confirmation.
func (d *Dashboard) askAboutBreaker(w http.ResponseWriter, r *http.Request, name, what, words, reason string) error {
	b, err := d.readBreaker(r.Context(), name)
	if err != nil {
		return err
	}
	p := confirmPage{
		Action: "/breakers/" + name, Back: "/breakers/" + name, Reason: reason, AskReason: what != "reset", Danger: what == "trip",
		Fields: []field{{"action", what}, {"for", r.PostFormValue("for")}},
		Lead:   fmt.Sprintf("%s is %s now; %s.", name, stateWords(b.Breaker), plural(b.Waiting, "job waits", "jobs wait")),
	}
	switch what {
	case "trip":
		p.Title = "Open " + name + " " + words + "?"
		p.Submit = "Open " + name
		p.Points = []string{
			"No worker calls it meanwhile. Calls in flight finish, and jobs stay in their queue.",
			"Jobs that expire before then end as expired.",
		}
		if b.Expiring > 0 {
			p.Points[1] = "Jobs that expire before then end as expired: " + plural(b.Expiring, "job does", "jobs do") + " within the hour."
		}
		if words == tripLengths[len(tripLengths)-1].Text {
			p.Points = append(p.Points, "It does not close by itself: reset it by hand.")
		} else {
			p.Points = append(p.Points, "Then one call tests the API.")
		}
		if b.Key == "" {
			p.Points = append(p.Points, "All keys of "+name+" are held, too.")
		}
	case "force":
		p.Title = "Keep " + name + " closed " + words + "?"
		p.Submit = "Keep " + name + " closed"
		p.Points = []string{"Calls go out whatever the API sends. A 429 reschedules its own job but does not open the breaker."}
	case "forget":
		p.Title = "Forget the limits of " + name + "?"
		p.Submit = "Forget them"
		p.Points = []string{
			"What was learned and what the API announced is gone for all workers; the next responses teach it anew.",
			"Declared limits stay, and so does the state of the breaker.",
		}
	default:
		p.Title = "Reset " + name + "?"
		p.Submit = "Reset " + name
		p.Points = []string{
			"It closes at once, and calls start slowly: 1, 2, 4 and so on at a time. A second reset ends the slow start.",
			"If the API still limits, its next 429 open the breaker again.",
		}
		if b.Breaker.Forced != "" {
			p.Points = []string{"It is no longer kept closed: 429 open it again."}
		}
	}
	d.confirm(w, r, p)
	return nil
}

// stateWords is the wording of a breaker's state inside a sentence.
func stateWords(b breaker.Status) string {
	switch b.State {
	case breaker.Open:
		return "open"
	case breaker.HalfOpen:
		return "being probed"
	case breaker.Closed:
	}
	return "closed"
}
