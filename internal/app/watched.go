package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/serve/health"
)

// scrapesAtOnce bounds concurrent scrapes; others are refused.
const scrapesAtOnce = 4

// watched is what others see of a worker: health, metrics, and what its service manager
// is notified of.
type watched struct {
	log      *slog.Logger
	registry *prometheus.Registry
	ready    readiness
	file     *destinationsFile
}

// newWatched serves health and metrics, if cfg wants that, until stop is run.
func newWatched(ctx context.Context, cfg *config.Config, log *slog.Logger, stop *teardown) (*watched, error) {
	w := &watched{log: log, registry: newRegistry()}
	w.file = newDestinationsFile(cfg, w.registry, log)
	w.ready.file = w.file
	if cfg.OpsAddr == "" {
		return w, nil
	}
	server, err := health.Start(ctx, health.Options{
		Addr: cfg.OpsAddr, OrFree: !cfg.IsSet("OPS_ADDR"),
		Ready:   w.ready.report,
		Metrics: scrapes(w.registry, log),
		Logger:  log,
	})
	if err != nil {
		return nil, config.Errors{&config.Error{
			Variable: "OPS_ADDR", Problem: err.Error(), Fix: "set it to an address of this machine with a free port, or to off",
		}}
	}
	stop.add(server.Close)
	return w, nil
}

// newRegistry returns a registry with the metrics of the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func scrapes(registry *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{log}, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce, EnableOpenMetrics: true,
	})
}

// scrapeLog gets what goes wrong in a scrape. A client that hangs up in the
// middle of one is not logged for each metric.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(args ...any) {
	level := slog.LevelWarn
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			if _, network := errors.AsType[net.Error](err); network || errors.Is(err, http.ErrHandlerTimeout) {
				level = slog.LevelDebug
			}
		}
	}
	l.log.Log(context.Background(), level, "metrics", "problem", strings.TrimSpace(fmt.Sprintln(args...)))
}

// follow notifies the service manager, if there is one, when the publisher has started and
// that it stops, until stop is run.
func (w *watched) follow(ctx context.Context, started <-chan struct{}, stop *teardown) {
	done := make(chan struct{})
	over := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-started:
			notify(w.log, daemon.SdNotifyReady)
		case <-ctx.Done():
		case <-over:
			return
		}
		select {
		case <-ctx.Done():
			w.ready.stops()
			notify(w.log, daemon.SdNotifyStopping)
		case <-over:
		}
	}()
	stop.add(func() error {
		close(over)
		<-done
		return nil
	})
}

// notify notifies systemd, if that asks for it; see sd_notify(3).
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd could not be notified", "error", err)
	}
}
