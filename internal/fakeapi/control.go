package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// controlPrefix is where the endpoints for other processes are.
const controlPrefix = "/_fake/"

// maxControlBody bounds what is posted to a control endpoint.
const maxControlBody = 1 << 20

func (a *API) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+controlPrefix+"stats", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Stats())
	})
	mux.HandleFunc("GET "+controlPrefix+"accepted", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Accepted())
	})
	mux.HandleFunc("GET "+controlPrefix+"receipts", a.controlReceipts)
	mux.HandleFunc("POST "+controlPrefix+"limit", post(func(spec limitSpec) error {
		l, err := spec.limiter()
		if err == nil {
			a.SetLimiter(l)
		}
		return err
	}))
	mux.HandleFunc("POST "+controlPrefix+"hints", post(func(names []string) error {
		hints, err := hintsByName(names)
		if err == nil {
			a.SetHints(hints)
		}
		return err
	}))
	mux.HandleFunc("POST "+controlPrefix+"latency", post(func(d duration) error {
		a.SetLatency(time.Duration(d))
		return nil
	}))
	mux.HandleFunc("POST "+controlPrefix+"script", post(func(specs []answerSpec) error {
		answers, err := expand(specs)
		a.Queue(answers...)
		return err
	}))
	mux.HandleFunc("POST "+controlPrefix+"reset", func(w http.ResponseWriter, _ *http.Request) {
		a.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (a *API) controlReceipts(w http.ResponseWriter, r *http.Request) {
	receipts := a.Receipts()
	if after := r.FormValue("after"); after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 0 {
			http.Error(w, "after must be the number of a receipt", http.StatusBadRequest)
			return
		}
		receipts = receipts[min(n, len(receipts)):]
	}
	writeJSON(w, receipts)
}

// post handles a JSON document: 204, or 400 with what is wrong.
func post[T any](apply func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var doc T
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxControlBody))
		dec.DisallowUnknownFields()
		err := dec.Decode(&doc)
		if err == nil {
			err = apply(doc)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func writeJSON(w http.ResponseWriter, doc any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(doc) // fails only if the caller left
}

// limitSpec is a Limiter as JSON.
type limitSpec struct {
	Kind   string   `json:"kind"`
	Quota  int      `json:"quota"`
	Window duration `json:"window"`
	Extend duration `json:"extend"`
	Rate   float64  `json:"rate"`
	Burst  int      `json:"burst"`
}

func (s limitSpec) limiter() (Limiter, error) {
	var l Limiter
	window := time.Duration(s.Window)
	switch s.Kind {
	case "none":
		return nil, nil
	case "fixed-window":
		l = FixedWindow{Quota: s.Quota, Window: window}
	case "sliding-window":
		l = SlidingWindow{Quota: s.Quota, Window: window}
	case "token-bucket":
		l = TokenBucket{Rate: s.Rate, Burst: s.Burst}
	case "penalty":
		l = Penalty{Quota: s.Quota, Window: window, Extend: time.Duration(s.Extend)}
	default:
		return nil, fmt.Errorf("unknown kind %q: want none, fixed-window, sliding-window, token-bucket or penalty", s.Kind)
	}
	return l, l.validate()
}

// answerSpec is an Answer, some times over, as JSON.
type answerSpec struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
	Delay  duration    `json:"delay"`
	Drop   bool        `json:"drop"`
	Times  int         `json:"times"` // 0: once
}

// maxTimes bounds the answers that one spec queues.
const maxTimes = 100_000

// expand returns the answers of the specs in order, none if one spec is wrong.
func expand(specs []answerSpec) ([]Answer, error) {
	var answers []Answer
	for i, s := range specs {
		if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
			return nil, fmt.Errorf("answer %d: status is %d: it must be 200 to 599, or 0 to let the limit decide", i, s.Status)
		}
		if s.Times < 0 || s.Times > maxTimes {
			return nil, fmt.Errorf("answer %d: times is %d: it must be 1 to %d", i, s.Times, maxTimes)
		}
		for range max(s.Times, 1) {
			answers = append(answers, Answer{
				Status: s.Status, Header: s.Header, Body: s.Body, Delay: time.Duration(s.Delay), Drop: s.Drop,
			})
		}
	}
	return answers, nil
}

// duration is a time.Duration in Go's notation, "1.5s", as JSON.
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = duration(parsed)
	return nil
}
