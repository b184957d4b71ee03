package publisher_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/publisher"
)

// An API that repeats the whole call, as it is and encoded, gets nothing that is secret of
// the configuration into a job's record, an event or an answer that alerts quote.
func TestHTTPKeepsNothingSecretOfTheConfiguration(t *testing.T) {
	t.Parallel()
	const (
		inPath, inKey, inSig = "B0123456789abcdefXYZ", "k3y-9f2a", "c2ln/bmF0dXJl"
		own, words, auth     = "0wn-cr3dential", "accepted-by-nobody", "Basic dTpodW50ZXIyMg=="
	)
	basic := base64.StdEncoding.EncodeToString
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		b := newFixture(t)
		a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "no %s with %s, %s and %s\n", r.RequestURI, r.Header.Get("X-Key"), r.Header.Get("X-Words"), r.Header.Get("Authorization"))
			_, _ = fmt.Fprintf(w, "%q %s %s", r.URL.Query()["sig"], basic([]byte(own)), base64.RawURLEncoding.EncodeToString([]byte(inKey)))
		})
		h := newHTTP(t, publisher.HTTPOptions{
			URL:    a.URL + "/hooks/" + inPath + "?key=" + inKey + "&sig=c2ln%2fbmF0dXJl&v=1",
			Header: http.Header{"X-Key": {own}, "X-Words": {words}, "Authorization": {auth}, "Accept": {"text/plain"}},
		})
		o := b.options()
		answers := make(chan publisher.Answer, 10)
		o.Observe(publisher.Observer{OnAnswer: func(x publisher.Answer) { answers <- x }})
		job := b.enqueue()
		b.run(o, h.Publish, publisher.Breaker(breaker.Options{FailureThreshold: 9}))
		e := b.result(job.ID)
		got := b.get(job.ID)
		if a.only(t).Header.Get("X-Key") != own {
			t.Fatalf("called with %v", a.only(t).Header)
		}
		shown := map[string]string{
			"the record": fmt.Sprint(b.rdb.HGetAll(context.Background(), store.TaskKey(store.DefaultNamespace.Queue(b.dest, store.Default), job.ID)).Val()),
			"the event":  fmt.Sprintf("%+v %v", e.Job.Response, e.Err),
		}
		if status == http.StatusTooManyRequests {
			shown["the answer for alerts"] = fmt.Sprintf("%+v", <-answers)
		}
		for where, text := range shown {
			for _, hidden := range []string{inPath, inKey, inSig, "c2ln%2fbmF0dXJl", own, words, auth, auth[6:], "hunter22", basic([]byte(own)), "azN5LTlmMmE"} {
				if strings.Contains(text, hidden) {
					t.Errorf("%d: %s shows %s: %s", status, where, hidden, text)
				}
			}
		}
		want := "no /hooks/[redacted]?key=[redacted]&sig=[redacted]&v=1 with [redacted], [redacted] and [redacted]\n" + `["[redacted]"] [redacted] [redacted]`
		if got.Response == nil || got.Response.Body != want {
			t.Errorf("%d: kept %+v, want %s", status, got.Response, want)
		}
	}
}

// The beginning of a secret is none the less one where an answer breaks off in it.
func TestHTTPAnswerThatBreaksOffInASecret(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{"200 OK": "no [redacted]", "429 Too Many Requests": "no [redacted]"} {
		url := rawServer(t, func(c net.Conn, _, _ int) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 100\r\n\r\nno 0wn-cr3denti")
			return false
		})
		job := keyed("")
		_ = newHTTP(t, publisher.HTTPOptions{URL: url, Header: http.Header{"X-Key": {"0wn-cr3dential"}}}).Publish(t.Context(), job)
		if job.Response == nil || job.Response.Body != want {
			t.Errorf("%s: kept %+v, want %s", status, job.Response, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An error that repeats the call does so without what is secret.
func TestHTTPErrorsHoldNothingSecretOfTheConfiguration(t *testing.T) {
	t.Parallel()
	h := newHTTP(t, publisher.HTTPOptions{
		URL: "http://api.example.com/B0123456789abcdefXYZ?sig=s1gnature", Header: http.Header{"X-Key": {"0wn-cr3dential"}},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy: %s with %s: %w", r.URL, r.Header.Get("X-Key"), io.ErrUnexpectedEOF)
		}),
	})
	err := h.Publish(t.Context(), keyed(""))
	const want = "call failed: proxy: http://api.example.com/[redacted]?sig=[redacted] with [redacted]: unexpected EOF"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
