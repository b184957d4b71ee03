package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/demo"
	"github.com/tidegate/tidegate/internal/webserver"
	"github.com/tidegate/tidegate/jobs"
)

type demoCmd struct {
	Jobs        int           `default:"${demo_jobs}" placeholder:"N" help:"Jobs to publish. Default: ${default}."`
	Workers     int           `default:"${demo_workers}" placeholder:"N" help:"Workers, as separate processes would be. Default: ${default}."`
	Concurrency int           `default:"${demo_concurrency}" placeholder:"N" help:"Calls at a time of each worker. Default: ${default}."`
	Quota       int           `default:"${demo_quota}" placeholder:"N" help:"Calls that the API accepts in a window. Default: ${default}."`
	Window      time.Duration `default:"${demo_window}" placeholder:"10s" help:"The API's window. Default: ${default}."`
	Latency     time.Duration `default:"${demo_latency}" placeholder:"400ms" help:"Time that the API takes for a response. Default: ${default}."`
	Threshold   int           `default:"${demo_threshold}" placeholder:"N" help:"429 in a row that open the breaker. Default: ${default}."`
	Cooldown    time.Duration `default:"${demo_cooldown}" placeholder:"5s" help:"How long the breaker then stays open. Default: ${default}."`
	Keep        bool          `help:"Serve the dashboard beside it, and go on after the summary until Ctrl-C."`
	Listen      string        `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"With --keep: where the dashboard is served. Default: ${default}, or a free port."`
}

// demoVars are the defaults of the flags.
func demoVars() map[string]string {
	d := demo.Defaults()
	return map[string]string{
		"demo_jobs": fmt.Sprint(d.Jobs), "demo_workers": fmt.Sprint(d.Workers),
		"demo_concurrency": fmt.Sprint(d.Concurrency), "demo_quota": fmt.Sprint(d.Quota),
		"demo_window": d.Window.String(), "demo_latency": d.Latency.String(),
		"demo_threshold": fmt.Sprint(d.Threshold), "demo_cooldown": d.Cooldown.String(),
	}
}

// Run gives the show.
func (c *demoCmd) Run(ctx context.Context, p *Process) error {
	o := demo.Options{
		Jobs: c.Jobs, Workers: c.Workers, Concurrency: c.Concurrency, Quota: c.Quota,
		Window: c.Window, Latency: c.Latency, Threshold: c.Threshold, Cooldown: c.Cooldown,
	}
	if err := o.Validate(); err != nil {
		return inputErrorf("demo: %w", err)
	}
	if c.Keep {
		o.Serve = c.serve(p)
	}
	return demo.Run(ctx, o, p.Stdout)
}

// serve serves the dashboard of a show: on this machine only, where every
// caller has all rights.
func (c *demoCmd) serve(p *Process) func(context.Context, redis.UniversalClient, *jobs.Client) (string, func() error, error) {
	return func(ctx context.Context, rdb redis.UniversalClient, client *jobs.Client) (string, func() error, error) {
		if err := access.CheckAddress(c.Listen, false); err != nil {
			return "", nil, inputErrorf("--listen: the dashboard of a demo asks for no token; give it an address such as 127.0.0.1:8080")
		}
		log := slog.New(&warnHandler{p: p})
		served, err := app.APIHandler(ctx, app.APIOptions{Redis: rdb, Client: client, Version: p.version().Version, Logger: log})
		if err != nil {
			return "", nil, err
		}
		o := webserver.Options{Addr: c.Listen, Handler: served, Logger: log}
		server, err := webserver.Start(ctx, o)
		if errors.Is(err, syscall.EADDRINUSE) {
			host, _, _ := net.SplitHostPort(c.Listen) // it was listened on
			o.Addr = net.JoinHostPort(host, "0")
			server, err = webserver.Start(ctx, o)
		}
		if err != nil {
			served.Close()
			return "", nil, err
		}
		return "http://" + server.Addr(), func() error {
			served.Close()
			return server.Close()
		}, nil
	}
}
