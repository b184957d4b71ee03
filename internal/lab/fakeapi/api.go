// Package fakeapi is a rate-limited API over real HTTP that records every call, for tests,
// benchmarks and the demo.
//
//	api := fakeapi.New(fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 5, Window: time.Second}})
//	url, err := api.Start("")
//	…
//	defer api.Close()
//
// Every path is the API, except those under /_fake/, with which other processes look
// at receipts and change the behaviour (see [API.ServeHTTP]).
package fakeapi

import (
	"cmp"
	"net/http"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi/loopback"
)

// Options configure the API. The zero value accepts every call at once.
type Options struct {
	// Limiter refuses calls; nil: none is refused.
	Limiter Limiter
	// PerToken gives each Authorization header a separate budget.
	PerToken bool
	// Hints are the headers that announce the limit.
	Hints Hint
	// Status of an accepted call; 0: 201.
	Status int
	// LimitedStatus of a refused call; 0: 429.
	LimitedStatus int
	// Latency is the time from a call's arrival to its answer.
	Latency time.Duration
	// LatencyFunc gives the latency of each call from its number and the status of
	// its answer; it takes the place of Latency. It must not call the API.
	LatencyFunc func(n, status int) time.Duration
	// Script decides about single calls; see SetScript.
	Script Script
	// Dedupe makes an accepted call with the Idempotency-Key of an earlier one a
	// duplicate, which is answered but has no effect. Without it the key is only noted.
	Dedupe bool
	// Light leaves headers and bodies out of receipts, for very many calls.
	Light bool
	// Now is the clock of limits and receipts; nil: time.Now. Latency always runs on
	// the real clock.
	Now func() time.Time
}

// Script decides about the n-th call, counted from 1; nil leaves it to the limiter.
// It is called for one call at a time and must neither block nor call the API.
type Script func(n int, r *http.Request) *Answer

// Answer is a scripted answer.
type Answer struct {
	// Status is sent as it is, without hints and without using up the limit; 0: the
	// limiter decides as if there were no script.
	Status int
	// Header is added to the answer's.
	Header http.Header
	// Body takes the place of the usual one, unless empty.
	Body string
	// Delay comes on top of the latency.
	Delay time.Duration
	// Drop closes the connection instead of answering.
	Drop bool
}

// API is a fake API; see [New]. Its methods may be called at any time.
type API struct {
	control http.Handler

	mu       sync.Mutex
	opts     Options
	budgets  map[string]*account // by Auth if PerToken, else only ""
	queue    []Answer            // for the next calls, before the script
	receipts []*Receipt
	accepted map[string]int
	stats    Stats
	changed  chan struct{} // closed at the next change; nil without waiters

	server *loopback.Server
}

// New returns an API that does not listen yet. It panics on invalid options.
func New(opts Options) *API {
	if err := validateLimiter(opts.Limiter); err != nil {
		panic("fakeapi: " + err.Error())
	}
	opts.Status = cmp.Or(opts.Status, http.StatusCreated)
	opts.LimitedStatus = cmp.Or(opts.LimitedStatus, http.StatusTooManyRequests)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	a := &API{opts: opts}
	a.control = a.controlHandler()
	a.server = loopback.NewServer("fakeapi", a)
	a.Reset()
	return a
}

// SetLimiter replaces Options.Limiter; all budgets are whole again. It panics on invalid
// figures.
func (a *API) SetLimiter(l Limiter) {
	if err := validateLimiter(l); err != nil {
		panic("fakeapi: " + err.Error())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opts.Limiter = l
	a.budgets = map[string]*account{}
}

// SetHints replaces the headers that announce the limit.
func (a *API) SetHints(hints Hint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opts.Hints = hints
}

// SetLatency replaces the latency.
func (a *API) SetLatency(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opts.Latency, a.opts.LatencyFunc = d, nil
}

// SetScript replaces the script; nil: none.
func (a *API) SetScript(s Script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.opts.Script = s
}

// Queue gives the answers, in order, to the next calls, instead of the script.
func (a *API) Queue(answers ...Answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, answers...)
}

// Reset deletes all receipts, counts and queued answers and refills all budgets. Options stay, and
// calls in flight are not recorded.
func (a *API) Reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	inFlight := a.stats.InFlight
	a.budgets, a.accepted = map[string]*account{}, map[string]int{}
	a.queue, a.receipts = nil, nil
	a.stats = Stats{InFlight: inFlight, MaxInFlight: inFlight}
	a.wake()
}

// Start listens on a loopback address, by default a free port of 127.0.0.1, and
// returns the base URL, without a slash at its end. After Close it may be called
// again, for instance with the address it had.
func (a *API) Start(addr string) (string, error) { return a.server.Start(addr) }

// Close stops listening, cuts the calls in flight and returns when all have ended.
// Receipts and counts stay.
func (a *API) Close() error { return a.server.Close() }
