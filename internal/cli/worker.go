package cli

import (
	"context"
	"log/slog"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/config/logging"
)

type workerCmd struct{}

// Run publishes jobs until ctx ends.
func (c *workerCmd) Run(ctx context.Context, p *Process) error {
	return p.serve(ctx, true, app.RunWorker)
}

type apiCmd struct{}

// Run serves until ctx ends.
func (c *apiCmd) Run(ctx context.Context, p *Process) error {
	return p.serve(ctx, false, app.RunAPI)
}

// serve runs a process that logs until ctx ends.
func (p *Process) serve(ctx context.Context, needsDestinations bool,
	run func(context.Context, *config.Config, *slog.Logger, app.Process) error,
) error {
	load := config.Load
	if !needsDestinations {
		load = config.LoadForAPI
	}
	cfg, warnings, err := load(p.Environ)
	if err != nil {
		for _, w := range warnings {
			p.warn(w.String())
		}
		return err
	}
	if err := cfg.RequireDestinations(); needsDestinations && err != nil {
		return err
	}
	log := logging.NewLogger(p.Stderr, isTerminal(p.Stderr), cfg.Log, cfg.Redactor())
	logging.SetStandard(log)
	for _, w := range warnings {
		if needsDestinations || !w.AboutWorkers() {
			log.WarnContext(ctx, "configuration", "variable", w.Variable, "problem", w.Message)
		}
	}
	v := p.version()
	return run(ctx, cfg, log, app.Process{Version: v.Version, Commit: v.Commit, Environ: p.Environ})
}
