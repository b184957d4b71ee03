package fakeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	mux.HandleFunc("GET "+controlPrefix+"receipts", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, a.Receipts())
	})
	mux.HandleFunc("POST "+controlPrefix+"limit", post(func(spec limitSpec) error {
		l, err := spec.limiter()
		if err == nil {
			a.SetLimiter(l)
		}
		return err
	}))
	mux.HandleFunc("POST "+controlPrefix+"hints", post(func(names []string) error {
		hints, err := HintsByName(names)
		if err == nil {
			a.SetHints(hints)
		}
		return err
	}))
	mux.HandleFunc("POST "+controlPrefix+"latency", post(func(d duration) error {
		a.SetLatency(time.Duration(d))
		return nil
	}))
	mux.HandleFunc("POST "+controlPrefix+"reset", func(w http.ResponseWriter, _ *http.Request) {
		a.Reset()
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
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
}

func (s limitSpec) limiter() (Limiter, error) {
	switch s.Kind {
	case "none":
		return nil, nil
	case "fixed-window":
		l := FixedWindow{Quota: s.Quota, Window: time.Duration(s.Window)}
		return l, l.Validate()
	}
	return nil, fmt.Errorf("unknown kind %q: want none or fixed-window", s.Kind)
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
