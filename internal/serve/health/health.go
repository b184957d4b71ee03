// Package health serves the health, readiness and metrics of a process: /healthz,
// /readyz and /metrics.
package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/tidegate/tidegate/internal/serve/webserver"
)

// Options configure a Server.
type Options struct {
	// Addr is host:port; port 0 is a free one.
	Addr string
	// OrFree takes a free port, with a warning, if the port of Addr is taken.
	OrFree bool
	// Ready answers /readyz. It is asked at most once a second.
	Ready func(context.Context) Report
	// Metrics answers /metrics.
	Metrics http.Handler
	// Logger gets the address, and what goes wrong.
	Logger *slog.Logger
}

// Values of Report.Status.
const (
	Ready    = "ready"
	NotReady = "not ready"
)

// Report is the readiness of a worker, or of an API, which has no destinations.
type Report struct {
	// Status is Ready or NotReady.
	Status string `json:"status"`
	// Reason is why it is not ready; "" if it is.
	Reason string `json:"reason,omitempty"`
	// Redis is "ok", or what is wrong with it.
	Redis string `json:"redis"`
	// RedisWarning is what endangers the jobs in Redis: it may drop keys, or has done so. It does
	// not make the worker unready.
	RedisWarning string `json:"redis_warning,omitempty"`
	// ConfigWarning says that the destinations file was changed and could not be taken up. It does not
	// make the worker unready.
	ConfigWarning string `json:"config_warning,omitempty"`
	// Destinations that the worker serves.
	Destinations []Destination `json:"destinations"`
}

// Destination is the state of a destination in a worker.
type Destination struct {
	Name string `json:"destination"`
	// State is "starting", "fetching", "waiting", "unreachable", "paused", "failing" or "stopping".
	State string `json:"state"`
	// Reason is why no jobs are fetched, Until when that ends, if known.
	Reason string     `json:"reason,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	// FailedRecently is how many jobs failed in the last 15 minutes, in the whole fleet, and
	// were not retried. It does not make the worker unready.
	FailedRecently int `json:"failed_last_15m"`
	// InFlight is how many jobs the worker has in flight, Concurrency how many calls it makes
	// at once at most.
	InFlight    int `json:"in_hand"`
	Concurrency int `json:"concurrency"`
}

const (
	// headerTimeout is how long a request's header may take: probes send it at once.
	headerTimeout = 2 * time.Second
	// connections is how many may be open at once: they are
	// taken from what the process needs for Redis and its calls.
	connections = 256
	// readyFor is how long a report of a ready worker is reused, notReadyFor another one.
	readyFor    = time.Second
	notReadyFor = 100 * time.Millisecond
	// readyTimeout bounds the making of a report.
	readyTimeout = 3 * time.Second
)

// Server serves until it is closed.
type Server struct {
	o   Options
	web *webserver.Server

	making sync.Mutex // held while a report is made; requests that wait get it
	report Report
	madeAt time.Time
}

// Start listens and serves. Errors: the address cannot be listened on.
func Start(ctx context.Context, o Options) (*Server, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", o.Addr)
	if err != nil && o.OrFree && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(o.Addr) // it was listened on
		taken := o.Addr
		if l, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0")); err == nil {
			o.Logger.WarnContext(ctx, "the default of OPS_ADDR is taken; a free port is used: set OPS_ADDR", "taken", taken, "addr", l.Addr().String())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("health: listen: %w", err)
	}
	s := &Server{o: o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", o.Metrics)
	s.web, err = webserver.Start(ctx, webserver.Options{
		Listener: l, Handler: mux, Logger: o.Logger, MaxConnections: connections, CloseWithin: time.Second,
		Limits: webserver.Limits{Header: headerTimeout, Stall: headerTimeout},
	})
	if err != nil {
		return nil, fmt.Errorf("health: %w", err)
	}
	o.Logger.InfoContext(ctx, "health and metrics", "addr", s.Addr())
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.web.Addr() }

// Close stops serving; requests under way get a second to end.
func (s *Server) Close() error {
	if err := s.web.Close(); err != nil {
		return fmt.Errorf("health: close: %w", err)
	}
	return nil
}

// healthz answers that the process lives. It does not ask Redis, so that an outage of Redis does not restart all
// workers.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	report := s.ready(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if report.Status != Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body := json.NewEncoder(w)
	body.SetIndent("", "  ")
	_ = body.Encode(report) // fails only if the caller has left
}

func (s *Server) ready(ctx context.Context) Report {
	s.making.Lock()
	defer s.making.Unlock()
	fresh := readyFor
	if s.report.Status != Ready {
		fresh = notReadyFor
	}
	if s.madeAt.IsZero() || time.Since(s.madeAt) >= fresh {
		// Others may wait for it too: it is made whether or not this one does.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		s.report, s.madeAt = s.o.Ready(ctx), time.Now()
	}
	return s.report
}
