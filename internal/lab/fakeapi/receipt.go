package fakeapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// Receipt is the record of a call. Its Status is decided on arrival:
// from then on the call has taken effect, whether or not the caller waits for the answer. A
// call that ends before its body is complete leaves no receipt.
type Receipt struct {
	// N numbers the calls from 1 in order of arrival.
	N int `json:"n"`
	// At is when the call had arrived, by Options.Now. In this process it carries
	// the monotonic clock's reading.
	At time.Time `json:"at"`
	// Done is when the answer was handed out, the caller left or the API closed;
	// zero while the call is in flight.
	Done time.Time `json:"done,omitzero"`
	// Key is the Idempotency-Key header.
	Key string `json:"key"`
	// Auth is HashAuth of the Authorization header; empty without one.
	Auth   string `json:"auth,omitempty"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	// Header is without Authorization, nil with Options.Light. Treat as read-only.
	Header http.Header `json:"header,omitempty"`
	// Body is nil if empty or with Options.Light. Treat as read-only.
	Body []byte `json:"body,omitempty"`
	// Status of the answer.
	Status int `json:"status"`
	// Duplicate: the key had been accepted before, and Options.Dedupe is set.
	Duplicate bool `json:"duplicate,omitempty"`
	// Gone: the caller left before the answer, or never got it (Answer.Drop).
	Gone bool `json:"gone,omitempty"`
	// Wasted: refused although an earlier answer had announced the limit, which had not
	// ended since. A refusal announces it and, with RateLimit or XRateLimit, a remaining 0,
	// from when the answer was sent.
	Wasted bool `json:"wasted,omitempty"`
	// InFlight counts the calls in flight on arrival, this one included.
	InFlight int `json:"in_flight"`
}

// Stats are the API's counts since its start or the last Reset. Each call is one of
// Accepted, Limited, Duplicates and Failed.
type Stats struct {
	Calls int `json:"calls"`
	// Accepted calls took effect: status 2xx, and no duplicate.
	Accepted int `json:"accepted"`
	// Limited calls were refused: Options.LimitedStatus or 429.
	Limited int `json:"limited"`
	// Wasted counts the refusals that the caller could have avoided; see Receipt.
	Wasted int `json:"wasted"`
	// Duplicates were answered without effect (Options.Dedupe).
	Duplicates int `json:"duplicates"`
	// Failed calls were answered otherwise by a script.
	Failed int `json:"failed"`
	// InFlight and MaxInFlight count calls that have no answer yet, now and at most.
	InFlight    int `json:"in_flight"`
	MaxInFlight int `json:"max_in_flight"`
}

// Receipts returns the receipts so far in order of arrival.
func (a *API) Receipts() []Receipt {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Receipt, len(a.receipts))
	for i, r := range a.receipts {
		out[i] = *r
	}
	return out
}

// Accepted returns how often a call with each Idempotency-Key was accepted.
func (a *API) Accepted() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.accepted)
}

// Stats returns the counts.
func (a *API) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// Wait returns when the counts satisfy the condition, which it looks at after each
// arrival and each answer, or with an error when ctx ends.
func (a *API) Wait(ctx context.Context, cond func(Stats) bool) error {
	for {
		a.mu.Lock()
		stats := a.stats
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		if cond(stats) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("fakeapi: wait: %w (counts at the end: %+v)", ctx.Err(), stats)
		}
	}
}

// wake lets all Waits look again; the caller holds mu.
func (a *API) wake() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}
