package cli

import (
	"context"
	"log/slog"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/logging"
)

type workerCmd struct{}

// Help implements kong.HelpProvider.
func (workerCmd) Help() string {
	return `Publishes the jobs of all destinations in the environment until SIGTERM, SIGINT or SIGHUP;
then calls in flight get SHUTDOWN_TIMEOUT to finish. A second signal ends it at
once. Run as many workers as you like, on as many machines: they share the
circuit breakers. Logs go to stderr (LOG_LEVEL, LOG_FORMAT).

Example:
  export REDIS_URL=redis://127.0.0.1:6379/0
  export DESTINATION_0_NAME=deviantart
  export DESTINATION_0_URL=https://api.example.com/v1/posts
  export DESTINATION_0_AUTH_TOKEN_FILE=/run/secrets/deviantart
  tidegate worker

Redis that cannot be reached is tried for 30 seconds. "tidegate config check"
shows the configuration.`
}

// Run publishes jobs until ctx ends.
func (c *workerCmd) Run(ctx context.Context, p *Process) error {
	return p.serve(ctx, true, app.RunWorker)
}

// serve runs a process that logs until ctx ends.
func (p *Process) serve(ctx context.Context, needsDestinations bool,
	run func(context.Context, *config.Config, *slog.Logger, app.Process) error,
) error {
	cfg, warnings, err := config.Load(p.Environ)
	if err != nil {
		for _, w := range warnings {
			p.warn(w.String())
		}
		return err
	}
	if err := cfg.RequireDestinations(); needsDestinations && err != nil {
		return err
	}
	log := logging.NewLogger(p.Stderr, isTerminal(p.Stderr), cfg.Log, cfg.Secrets()...)
	for _, w := range warnings {
		log.WarnContext(ctx, "configuration", "variable", w.Variable, "problem", w.Message)
	}
	v := p.version()
	return run(ctx, cfg, log, app.Process{Version: v.Version, Commit: v.Commit, Environ: p.Environ})
}
