package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
)

type fakeAPICmd struct {
	Listen   string        `default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Address to listen on; port 0 is a free one. Default: ${default}."`
	Limit    string        `default:"60/1m" placeholder:"60/1m" help:"Calls accepted in a window of this length, which begins with its first call; or none. Default: ${default}."`
	Hints    []string      `default:"retry-after" placeholder:"HINT" help:"Headers that announce the limit: retry-after, retry-after-date, ratelimit, x-ratelimit; or none. Default: ${default}."`
	PerToken bool          `help:"A separate limit for each Authorization header."`
	Latency  time.Duration `default:"50ms" placeholder:"50ms" help:"Time that a response takes. Default: ${default}."`
}

// fakeStats is the document of /_stats.
type fakeStats struct {
	fakeapi.Stats
	// Distinct counts the different Idempotency-Keys that were accepted.
	Distinct int `json:"distinct"`
}

// How long calls in flight may take at the end, then how long the cut ones may take to
// notice: together less than the 10 s that containers get.
const (
	fakeAPIPatience = 5 * time.Second
	fakeAPICut      = time.Second
)

// Run serves the API until ctx ends.
func (c *fakeAPICmd) Run(ctx context.Context, p *Process) error {
	o, err := c.options()
	if err != nil {
		return inputErrorf("fake-api: %w", err)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return inputErrorf("fake-api: %w; name another address with --listen", err)
	}
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	api := fakeapi.New(o)
	srv := &http.Server{
		Handler:           fakeHandler(api),
		BaseContext:       func(net.Listener) context.Context { return calls },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	var failed error
	served := make(chan struct{})
	go func() {
		defer close(served)
		failed = srv.Serve(l)
	}()
	fmt.Fprintf(p.Stderr, "tidegate: fake API at http://%s, limit %s, hints %s; counts at /_stats\n",
		l.Addr(), c.Limit, strings.Join(c.Hints, ","))
	select {
	case <-served:
		// Not wrapped: as an error of the network it would be taken for one of Redis.
		return errors.New("fake-api: " + failed.Error())
	case <-ctx.Done():
	}
	if shutdown(srv, fakeAPIPatience) != nil {
		cut()
		if shutdown(srv, fakeAPICut) != nil {
			_ = srv.Close() // only connections without a request are left
		}
	}
	<-served
	return p.printJSON(fakeCounts(api))
}

// shutdown lets the server end by itself for a while.
func shutdown(srv *http.Server, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return srv.Shutdown(ctx)
}

// options are what the flags say.
func (c *fakeAPICmd) options() (fakeapi.Options, error) {
	// Light: bodies of very many calls would fill the memory, and are not read.
	o := fakeapi.Options{PerToken: c.PerToken, Latency: c.Latency, Dedupe: true, Light: true}
	var wrong []string
	if c.Limit != "none" {
		rate, err := breaker.ParseRate(c.Limit)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("limit must be calls per time, such as 60/1m, or none, is %q", c.Limit))
		} else {
			o.Limiter = fakeapi.FixedWindow{Quota: rate.Calls, Window: rate.Per}
		}
	}
	var err error
	if o.Hints, err = fakeapi.HintsByName(c.Hints); err != nil {
		wrong = append(wrong, err.Error())
	}
	if c.Latency < 0 {
		wrong = append(wrong, fmt.Sprintf("latency must not be negative, is %s", c.Latency))
	}
	if len(wrong) > 0 {
		return o, errors.New(strings.Join(wrong, "; "))
	}
	return o, nil
}

// fakeHandler is the API with what trials ask of it. The controls change how it
// behaves and need no password, so they are for this machine only.
//
// No ServeMux: it would redirect paths that it finds untidy, which is the API's matter.
func fakeHandler(api *fakeapi.API) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case path == "/_stats" && r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(fakeCounts(api)) // fails only if the caller left
		case path == "/healthz" && r.Method == http.MethodGet:
			_, _ = w.Write([]byte("ok\n")) // likewise
		case strings.HasPrefix(path, "/_fake/") && !sameMachine(r.RemoteAddr):
			http.Error(w, "the controls answer callers on the same machine only", http.StatusForbidden)
		default:
			api.ServeHTTP(w, r)
		}
	})
}

// sameMachine reports whether the address of a caller is a loopback address.
func sameMachine(addr string) bool {
	from, err := netip.ParseAddrPort(addr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

func fakeCounts(api *fakeapi.API) fakeStats {
	keys := api.Accepted()
	delete(keys, "") // calls without a key
	return fakeStats{Stats: api.Stats(), Distinct: len(keys)}
}
