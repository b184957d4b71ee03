package minutes

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/publisher"
)

// errorsOf identifies the errors of a destination in an hour.
type errorsOf struct {
	destination string
	hour        time.Time
}

// failed counts the error that an attempt ended with.
func (r *Recorder) failed(e publisher.JobEvent) {
	counts := e.Result == publisher.FailedFinal || e.Result == publisher.Retried || e.Result == publisher.Rescheduled
	if text := store.SameError(e.LastError); counts && text != "" && e.Job != nil && !store.System(e.Destination) {
		now := r.now()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.addError(errorsOf{e.Destination, now.Truncate(time.Hour)}, store.ErrorCount{Text: text, Count: 1, Job: e.Job.ID, At: now})
	}
}

// addError adds to the errors of an hour; what has no room is counted as other texts.
func (r *Recorder) addError(of errorsOf, c store.ErrorCount) {
	texts := r.errors[of]
	if texts == nil {
		texts = map[string]store.ErrorCount{}
		r.errors[of] = texts
	}
	if _, known := texts[c.Text]; !known && len(texts) >= store.MostErrors-1 {
		c.Text = ""
	}
	before := texts[c.Text]
	c.Count += before.Count
	if before.At.After(c.At) {
		c.Job, c.At = before.Job, before.At
	}
	texts[c.Text] = c
}

// flushErrors is flush for errors.
func (r *Recorder) flushErrors(ctx context.Context) {
	r.mu.Lock()
	all := r.errors
	r.errors = map[errorsOf]map[string]store.ErrorCount{}
	r.mu.Unlock()
	for of, texts := range all {
		counts := make([]store.ErrorCount, 0, len(texts))
		for _, c := range texts {
			counts = append(counts, c)
		}
		err := r.ns.CountErrors(ctx, r.rdb, of.destination, of.hour, counts)
		if err == nil {
			continue
		}
		r.log.DebugContext(ctx, "the errors of the last seconds could not be counted; they are with the next ones", "error", err)
		r.mu.Lock()
		for _, c := range counts {
			if r.now().Sub(of.hour) < 2*time.Hour {
				r.addError(of, c)
			}
		}
		r.mu.Unlock()
	}
}
