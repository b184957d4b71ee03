package fakeapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// maxBody bounds the body of one call.
const maxBody = 8 << 20

// reply is the response to a call, decided on its arrival.
type reply struct {
	status    int
	header    http.Header
	body      string
	delay     time.Duration
	drop      bool
	announced time.Time // until when nothing is left of the budget; zero unless the response says so
	of        *account
}

// account is one budget, and until when a response has announced that nothing is left.
type account struct {
	budget Budget
	empty  time.Time
}

// ServeHTTP answers a call of the API or, under /_fake/, of its controls:
//
//	GET  /_fake/stats       the counts, as Stats
//	GET  /_fake/receipts    the receipts, as a list of Receipt
//	GET  /_fake/accepted    {"<idempotency key>": how often accepted}
//	POST /_fake/limit       {"kind":"fixed-window","quota":5,"window":"2s"}, or the kind none
//	POST /_fake/hints       ["retry-after"], and retry-after-date, ratelimit, x-ratelimit, scope
//	POST /_fake/latency     "20ms"
//	POST /_fake/reset       as Reset
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		a.control.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "the body is too large or cut off", http.StatusBadRequest)
		return
	}
	receipt, rep := a.arrive(r, body)
	answered := sleep(r.Context(), rep.delay) && !rep.drop
	a.leave(receipt, rep, answered)
	if !answered {
		panic(http.ErrAbortHandler) // closes the connection, quietly
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	maps.Copy(h, rep.header)
	w.WriteHeader(rep.status)
	_, _ = io.WriteString(w, rep.body) // the caller may have disconnected
}

// arrive records a call, decides its reply and lets it take effect.
func (a *API) arrive(r *http.Request, body []byte) (*Receipt, reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stats.Calls++
	a.stats.InFlight++
	a.stats.MaxInFlight = max(a.stats.MaxInFlight, a.stats.InFlight)
	receipt := &Receipt{
		N: a.stats.Calls, At: a.opts.Now(), InFlight: a.stats.InFlight,
		Key: r.Header.Get("Idempotency-Key"), Auth: HashAuth(r.Header.Get("Authorization")),
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
	}
	if !a.opts.Light {
		if len(body) > 0 {
			receipt.Body = body
		}
		receipt.Header = r.Header.Clone()
		receipt.Header.Del("Authorization")
	}
	a.receipts = append(a.receipts, receipt)

	rep := a.settle(receipt, a.scripted(receipt.N, r, body))
	a.count(receipt)
	a.wake()
	return receipt, rep
}

// scripted returns the answer that is queued or scripted for the call; the zero
// Answer if none is. The caller holds mu.
func (a *API) scripted(n int, r *http.Request, body []byte) Answer {
	if len(a.queue) > 0 {
		answer := a.queue[0]
		a.queue = a.queue[1:]
		return answer
	}
	if a.opts.Script != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		if answer := a.opts.Script(n, r); answer != nil {
			return *answer
		}
	}
	return Answer{}
}

// settle decides the reply; the caller holds mu.
func (a *API) settle(receipt *Receipt, answer Answer) reply {
	rep := reply{status: answer.Status, header: http.Header{}, delay: answer.Delay, drop: answer.Drop}
	if rep.status == 0 {
		rep.status = a.opts.Status
		if a.opts.Limiter != nil {
			a.take(receipt, &rep)
		}
	}
	receipt.Status = rep.status
	receipt.Duplicate = a.opts.Dedupe && success(rep.status) && receipt.Key != "" && a.accepted[receipt.Key] > 0

	rep.body = answer.Body
	if rep.body == "" {
		rep.body = a.body(receipt)
	}
	// The API's clock, to which the caller may compare dates.
	rep.header.Set("Date", receipt.At.UTC().Format(http.TimeFormat))
	for name, values := range answer.Header {
		rep.header[http.CanonicalHeaderKey(name)] = values
	}
	if a.opts.LatencyFunc != nil {
		rep.delay += a.opts.LatencyFunc(receipt.N, rep.status)
	} else {
		rep.delay += a.opts.Latency
	}
	return rep
}

// take takes the call from its budget, and notes whether the caller could have known the limit.
func (a *API) take(receipt *Receipt, rep *reply) {
	owner := ""
	if a.opts.PerToken {
		owner = receipt.Auth
	}
	of := a.budgets[owner]
	if of == nil {
		of = &account{budget: a.opts.Limiter.NewBudget()}
		a.budgets[owner] = of
	}
	v := of.budget.Take(receipt.At)
	receipt.Wasted = !v.OK && receipt.At.Before(of.empty)
	a.opts.Hints.write(rep.header, v, receipt.At)
	if !v.OK {
		rep.status = a.opts.LimitedStatus
	}
	if !v.OK || v.Remaining == 0 && a.opts.Hints&counts != 0 {
		rep.of, rep.announced = of, receipt.At.Add(v.Reset)
	}
}

// body is the usual body of an answer.
func (a *API) body(receipt *Receipt) string {
	switch {
	case success(receipt.Status):
		key, _ := json.Marshal(receipt.Key) // a text
		return fmt.Sprintf(`{"key":%s,"n":%d}`+"\n", key, receipt.N)
	case a.refused(receipt.Status):
		return fmt.Sprintf(`{"error":"rate limited","n":%d}`+"\n", receipt.N)
	}
	return fmt.Sprintf(`{"error":%q,"n":%d}`+"\n", http.StatusText(receipt.Status), receipt.N)
}

// count adds a call with a decided reply to the counts; the caller holds mu.
func (a *API) count(receipt *Receipt) {
	switch {
	case receipt.Duplicate:
		a.stats.Duplicates++
	case success(receipt.Status):
		a.stats.Accepted++
		a.accepted[receipt.Key]++
	case a.refused(receipt.Status):
		a.stats.Limited++
		if receipt.Wasted {
			a.stats.Wasted++
		}
	default:
		a.stats.Failed++
	}
}

// refused reports whether a status means "rate limited".
func (a *API) refused(status int) bool {
	return status == a.opts.LimitedStatus || status == http.StatusTooManyRequests
}

// leave records the end of the call before its response is written, so that a caller with the
// response finds the call ended.
func (a *API) leave(receipt *Receipt, rep reply, answered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	receipt.Done = a.opts.Now()
	receipt.Gone = !answered
	if answered && rep.of != nil && rep.announced.After(rep.of.empty) {
		rep.of.empty = rep.announced
	}
	a.stats.InFlight--
	a.wake()
}

// sleep waits, and reports whether it was to the end and not until ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func success(status int) bool { return status >= 200 && status < 300 }

// HashAuth returns the Auth of a Receipt for an Authorization header ("Bearer …"): 16
// hexadecimal digits of its SHA-256; empty for an empty header.
func HashAuth(authorization string) string {
	if authorization == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(authorization))
	return hex.EncodeToString(sum[:8])
}
