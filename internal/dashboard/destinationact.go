package dashboard

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/tidegate/tidegate/jobs"
)

// actOnDestination pauses or resumes a destination; a pause needs confirmation.
func (d *Dashboard) actOnDestination(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	reason, err := d.form(w, r)
	if err != nil {
		return err
	}
	if _, err := d.find(r.Context(), name); err != nil {
		return err
	}
	what := r.PostFormValue("action")
	if what != "pause" && what != "resume" {
		return wrong("There is no such action.")
	}
	if what == "pause" && !confirmed(r) {
		return d.askAboutPause(w, r, name, reason)
	}
	var changed bool
	text := "Paused " + name + "."
	if what == "pause" {
		changed, err = d.client.PauseDestination(r.Context(), name, jobs.By(d.viewerOf(r.Context()).By), jobs.Because(reason))
	} else {
		changed, err = d.client.ResumeDestination(r.Context(), name)
		text = "Resumed " + name + "."
	}
	d.audit(r.Context(), what+" destination", slog.String("target", name), result(err), slog.String("reason", reason))
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, name, err)
	}
	if !changed {
		text = name + " was " + what + "d already."
	}
	d.acted()
	setFlash(w, flash{Text: text})
	redirect(w, r, "/destinations/"+name)
	return nil
}

func (d *Dashboard) askAboutPause(w http.ResponseWriter, r *http.Request, name, reason string) error {
	n, err := d.client.Backlog(r.Context(), name)
	if err != nil {
		return fmt.Errorf("count jobs of %s: %w", name, err)
	}
	d.confirm(w, r, confirmPage{
		Title: "Pause " + name + "?", Submit: "Pause " + name, Danger: true, AskReason: true, Reason: reason,
		Action: "/destinations/" + name, Back: "/destinations/" + name, Fields: []field{{"action", "pause"}},
		Lead: plural(n, "unfinished job", "unfinished jobs") + ".",
		Points: []string{
			"No job of it is published until it is resumed. Jobs can be enqueued meanwhile. Calls in flight finish.",
			"The pause outlasts restarts of workers and does not end by itself. Jobs still expire.",
			"The reason is shown with the pause.",
		},
	})
	return nil
}
