package publisher_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

const benchAnswer = `{"id":4711,"status":"accepted","links":{"self":"https://api.example.com/items/4711"}}`

// answers is a transport that answers 201 without a network.
type answers struct{ body string }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Request: r, Body: io.NopCloser(strings.NewReader(a.body)),
		Header: http.Header{"Content-Type": {"application/json"}, "Date": {"Mon, 23 Nov 2026 06:00:00 GMT"}, "Content-Length": {"88"}},
	}, nil
}

// BenchmarkHTTPCall is a call of a destination without rules. Loopback has the API's part, too.
func BenchmarkHTTPCall(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, benchAnswer)
	}))
	defer server.Close()
	for name, o := range map[string]publisher.HTTPOptions{
		"handler":  {URL: "https://api.example.com/items", Transport: answers{benchAnswer}},
		"loopback": {URL: server.URL + "/items"},
	} {
		b.Run(name, func(b *testing.B) {
			o.AuthToken, o.Header = "a-token-of-the-destination", http.Header{"X-Tenant": {"tenant-4711"}}
			h, err := publisher.NewHTTP(o)
			if err != nil {
				b.Fatal(err)
			}
			job := &jobs.Job{ID: "0199d1c2-0000-7000-8000-000000000001", Destination: "shop", Payload: []byte(`{"title":"A picture","folder":7}`)}
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Publish(ctx, job); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
