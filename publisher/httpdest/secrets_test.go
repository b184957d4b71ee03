package httpdest_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/tidegate/tidegate/publisher/httpdest"
)

// The beginning of a secret is none the less one where an answer breaks off in it.
func TestHTTPAnswerThatBreaksOffInASecret(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]string{"200 OK": "no [redacted]", "429 Too Many Requests": "no [redacted]"} {
		url := rawServer(t, func(c net.Conn, _, _ int) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 100\r\n\r\nno 0wn-cr3denti")
			return false
		})
		job := keyed("")
		_ = newHTTP(t, httpdest.Options{URL: url, Header: http.Header{"X-Key": {"0wn-cr3dential"}}}).Publish(t.Context(), job)
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
	h := newHTTP(t, httpdest.Options{
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
