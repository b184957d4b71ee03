package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/webserver"
)

// Where the server has no room for another stream, this is a problem that says when to
// come again, and all else is answered.
func TestNoRoomForAStream(t *testing.T) {
	t.Parallel()
	begun, handler := make(chan struct{}), as(New(Options{}))
	server, err := webserver.Start(t.Context(), webserver.Options{
		Addr: "127.0.0.1:0", MaxConnections: 3, CloseWithin: time.Second, Logger: discard,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/live" {
				handler.ServeHTTP(w, r)
				return
			}
			ctx, cancel, err := webserver.Stream(r.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer cancel()
			close(begun)
			<-ctx.Done()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{url: "http://" + server.Addr()}
	live := make(chan struct{})
	go func() {
		defer close(live)
		b.get(t, "/live")
	}()
	<-begun
	answer := b.get(t, "/v1/events")
	const want = "too many subscribers of events; try again later, or use another instance"
	if p := answer.problem(t, http.StatusServiceUnavailable); p.Detail != want || answer.header.Get("Retry-After") != "5" {
		t.Errorf("detail %q, Retry-After %q", p.Detail, answer.header.Get("Retry-After"))
	}
	b.get(t, "/v1/events?type=x").problem(t, http.StatusUnprocessableEntity)
	web.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-live
}
