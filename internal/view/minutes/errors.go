package minutes

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/publisher"
)

// errorsOf identifies the errors of a destination in an hour.
type errorsOf struct {
	destination string
	hour        time.Time
}

// failed counts the error that an attempt ended with, up to MostErrors texts in one flush.
func (r *Recorder) failed(e publisher.JobEvent) {
	text, now := store.SameError(e.LastError), r.now()
	if text == "" || e.Result == publisher.Cancelled || store.System(e.Destination) {
		return
	}
	of := errorsOf{e.Destination, now.Truncate(time.Hour)}
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := r.errors[of]
	if texts == nil {
		texts = map[string]store.ErrorCount{}
		r.errors[of] = texts
	}
	if before := texts[text]; before.Count > 0 || len(texts) < store.MostErrors {
		texts[text] = store.ErrorCount{Error: text, Count: before.Count + 1, Job: e.Job.ID, At: now}
	}
}

// flushErrors adds the errors to those in Redis. Those of a flush that fails are lost.
func (r *Recorder) flushErrors(ctx context.Context) {
	r.mu.Lock()
	all := r.errors
	r.errors = map[errorsOf]map[string]store.ErrorCount{}
	r.mu.Unlock()
	for of, texts := range all {
		if err := r.ns.CountErrors(ctx, r.rdb, of.destination, of.hour, slices.Collect(maps.Values(texts))); err != nil {
			r.log.DebugContext(ctx, "the errors of the last seconds could not be counted", "error", err)
		}
	}
}
