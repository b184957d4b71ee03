package fakehttp

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Kind is how a call fails.
type Kind string

// The kinds of faults.
const (
	// Status answers with an HTTP status instead of the usual answer.
	Status Kind = "status"
	// Error answers with an error of the API's own form, such as Slack's
	// {"ok":false,"error":"…"}.
	Error Kind = "error"
	// Hang never answers: the call lasts until the caller leaves or the server stops.
	Hang Kind = "hang"
	// Drop closes the connection without an answer.
	Drop Kind = "drop"
	// Slow answers as usual, after Delay.
	Slow Kind = "slow"
)

// Left as a fault's RetryAfter means the time until the end of its For, in whole seconds, rounded
// up.
const Left = "left"

// Fault makes calls fail: all of them, or those selected by Methods, Next and For.
type Fault struct {
	Kind Kind
	// Methods are the API's methods that it affects; empty: all.
	Methods []string
	// Acts lets the call take effect before it fails, which the caller cannot know. With Slow
	// it always does, after the delay.
	Acts bool
	// Next is how many calls it affects; 0: no bound.
	Next int
	// For is how long it lasts from when it is set, by the fake's clock; 0: until
	// lifted.
	For time.Duration

	// Status of the answer. 0: 503, or for Error the API's choice.
	Status int
	// RetryAfter is the header's text, which need not be a number, or Left; empty: no
	// header.
	RetryAfter string
	// Code is the error of Error, such as "channel_not_found".
	Code string
	// Body and ContentType of the answer for Status; empty: the name of the status, as text.
	Body        string
	ContentType string
	// Delay of the answer for Slow.
	Delay time.Duration
}

// RateLimited answers 429 with a Retry-After in whole seconds, rounded up.
func RateLimited(retryAfter time.Duration) Fault {
	return Fault{Kind: Status, Status: http.StatusTooManyRequests, RetryAfter: seconds(retryAfter)}
}

// RateLimitedBare answers 429 without a Retry-After.
func RateLimitedBare() Fault {
	return Fault{Kind: Status, Status: http.StatusTooManyRequests}
}

// WithStatus answers with an HTTP status and its name.
func WithStatus(status int) Fault { return Fault{Kind: Status, Status: status} }

// HTML answers with a status and an HTML page, as proxies and gateways do.
func HTML(status int) Fault {
	return Fault{
		Kind: Status, Status: status, ContentType: "text/html; charset=utf-8",
		Body: "<!DOCTYPE html><html><head><title>Oops</title></head><body><h1>Something went wrong</h1></body></html>\n",
	}
}

// WithError answers with an error of the API's own form.
func WithError(code string) Fault { return Fault{Kind: Error, Code: code} }

// Hanging never answers.
func Hanging() Fault { return Fault{Kind: Hang} }

// Dropping closes the connection without an answer.
func Dropping() Fault { return Fault{Kind: Drop} }

// Slowly answers as usual after a delay.
func Slowly(d time.Duration) Fault { return Fault{Kind: Slow, Delay: d} }

// AfterActing returns the fault that lets the call take effect first.
func (f Fault) AfterActing() Fault { f.Acts = true; return f }

// On returns the fault for some methods only.
func (f Fault) On(methods ...string) Fault { f.Methods = methods; return f }

// Times returns the fault for the next n calls.
func (f Fault) Times(n int) Fault { f.Next = n; return f }

// During returns the fault for a time.
func (f Fault) During(d time.Duration) Fault { f.For = d; return f }

// active is a fault between its beginning and its end.
type active struct {
	Fault
	left  int       // calls; with Next
	until time.Time // with For
}

// SetFault makes calls fail from now on; lift ends the fault. Of several faults that match a call
// the one that was set first applies.
func (f *Fake) SetFault(fault Fault) (lift func()) {
	a := &active{Fault: fault, left: fault.Next}
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.For > 0 {
		a.until = f.now().Add(fault.For)
	}
	f.faults = append(f.faults, a)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = slices.DeleteFunc(f.faults, func(other *active) bool { return other == a })
	}
}

// LiftFaults ends all faults. Calls that hang already are not answered.
func (f *Fake) LiftFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// fault returns the fault of a call of method, and counts it; the caller holds mu.
func (f *Fake) fault(method string, now time.Time) (Fault, bool) {
	f.faults = slices.DeleteFunc(f.faults, func(a *active) bool {
		return a.For > 0 && !now.Before(a.until) || a.Next > 0 && a.left == 0
	})
	for _, a := range f.faults {
		if len(a.Methods) > 0 && !slices.Contains(a.Methods, method) {
			continue
		}
		a.left--
		fault := a.Fault
		if fault.RetryAfter == Left {
			fault.RetryAfter = seconds(a.until.Sub(now))
		}
		return fault, true
	}
	return Fault{}, false
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.Itoa(int(math.Ceil(d.Seconds())))
}
