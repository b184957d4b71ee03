// Package fakehttp is shared by the fakes of HTTP APIs: a server on a loopback address, faults that are
// switched while it runs, a log of the calls, and ways to wait for a change.
//
// A fake embeds a [Fake] and answers calls through [Fake.Answer].
package fakehttp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi/loopback"
)

// Fake is the common part of a fake; see [New]. Its methods may be called at any time.
type Fake struct {
	*loopback.Server

	name string
	now  func() time.Time

	mu       sync.Mutex
	faults   []*active
	requests []*Request
	changed  chan struct{} // closed at the next change
}

// New returns the common part of the fake called name, the prefix of its errors. Calls go to api. now is the
// clock of faults and of the log; nil: time.Now.
func New(name string, now func() time.Time, api http.HandlerFunc) *Fake {
	if now == nil {
		now = time.Now
	}
	return &Fake{name: name, now: now, changed: make(chan struct{}), Server: loopback.NewServer(name, api)}
}

// Now is the time by the fake's clock.
func (f *Fake) Now() time.Time { return f.now() }

// Response is the answer to a call.
type Response struct {
	Status int // 0: 200
	Header http.Header
	Body   []byte
}

// Call is a call to be answered.
type Call struct {
	// Method is its name in the log and in faults.
	Method string
	// Act lets it take effect and returns the usual answer.
	Act func() Response
	// Fail returns the answer to an Error fault.
	Fail func(Fault) Response
}

// Answer answers a call as the faults determine.
func (f *Fake) Answer(w http.ResponseWriter, r *http.Request, call Call) {
	request, fault, faulty := f.begin(call)
	var answer Response
	if !faulty || fault.Acts && fault.Kind != Slow {
		answer = call.Act()
	}
	answered := true
	if faulty {
		switch fault.Kind {
		case Status:
			answer = fault.response()
		case Error:
			answer = call.Fail(fault)
			if fault.RetryAfter != "" {
				if answer.Header == nil {
					answer.Header = http.Header{}
				}
				answer.Header.Set("Retry-After", fault.RetryAfter)
			}
		case Slow:
			if answered = sleep(r.Context(), fault.Delay); answered {
				answer = call.Act()
			}
		case Hang:
			<-r.Context().Done()
			answered = false
		case Drop:
			answered = false
		}
	}
	if !answered {
		f.end(request, 0)
		panic(http.ErrAbortHandler) // closes the connection, quietly
	}
	if answer.Status == 0 {
		answer.Status = http.StatusOK
	}
	// Before the answer is written, so that a caller which has it finds the call ended.
	f.end(request, answer.Status)
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // the caller may have disconnected
}

// response is the answer of a Status fault.
func (f Fault) response() Response {
	status := f.Status
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	if f.ContentType != "" {
		header.Set("Content-Type", f.ContentType)
	}
	if f.RetryAfter != "" {
		header.Set("Retry-After", f.RetryAfter)
	}
	body := f.Body
	if body == "" {
		body = http.StatusText(status) + "\n"
	}
	return Response{status, header, []byte(body)}
}

// Request is the record of a call.
type Request struct {
	// N numbers the calls from 1 in order of arrival.
	N int
	// Method is the API's method.
	Method string
	// At is when the call had arrived, Done when it was answered or had ended without
	// an answer; zero while it is in flight. Both by the fake's clock.
	At   time.Time
	Done time.Time
	// Status of the answer; 0: there is none yet, or there was none.
	Status int
	// Fault is the kind of its fault; empty: none.
	Fault Kind
}

func (f *Fake) begin(call Call) (*Request, Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	fault, faulty := f.fault(call.Method, now)
	request := &Request{N: len(f.requests) + 1, Method: call.Method, At: now, Fault: fault.Kind}
	f.requests = append(f.requests, request)
	f.wake()
	return request, fault, faulty
}

func (f *Fake) end(request *Request, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	request.Done, request.Status = f.now(), status
	f.wake()
}

// Requests returns the calls so far in order of arrival.
func (f *Fake) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Request, len(f.requests))
	for i, r := range f.requests {
		out[i] = *r
	}
	return out
}

// Calls counts the calls of some methods so far; of all without one.
func (f *Fake) Calls(methods ...string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if len(methods) == 0 || slices.Contains(methods, r.Method) {
			n++
		}
	}
	return n
}

// Change wakes the waiters.
func (f *Fake) Change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wake()
}

// wake wakes the waiters; the caller holds mu.
func (f *Fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Wait returns when look is true, checked now and after each change, or with an error when ctx
// ends.
func (f *Fake) Wait(ctx context.Context, look func() bool) error {
	for {
		f.mu.Lock()
		changed := f.changed
		f.mu.Unlock()
		if look() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: wait: %w", f.name, ctx.Err())
		}
	}
}

// AwaitRequests returns when the calls so far satisfy the condition, or with an error
// when ctx ends.
func (f *Fake) AwaitRequests(ctx context.Context, cond func([]Request) bool) error {
	return f.Wait(ctx, func() bool { return cond(f.Requests()) })
}

// sleep waits, and reports whether it was to the end and not until ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
