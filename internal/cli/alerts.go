package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/view/ops"
)

// alertsCmds are the commands about alerts.
type alertsCmds struct {
	Test alertsTestCmd `cmd:"" help:"Send one alert of each kind, and print what is wrong."`
}

type alertsTestCmd struct{ outputFlag }

// alertStep is a step as JSON.
type alertStep struct {
	Of      string `json:"of"`
	What    string `json:"what"`
	OK      bool   `json:"ok"`
	Problem string `json:"problem"`
}

// Run sends test alerts.
func (c *alertsTestCmd) Run(ctx context.Context, p *Process) error {
	cfg, err := p.loadWarning(config.Load, func(w config.Warning) bool { return !w.AboutWorkers() })
	if err != nil {
		return err
	}
	if !cfg.Alerts.Enabled() {
		return inputErrorf("alerts have no receiver: set SLACK_BOT_TOKEN and SLACK_CHANNEL, SLACK_WEBHOOK_URL, or PAGERDUTY_ROUTING_KEY")
	}
	options, err := app.AlertOptions(cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return fmt.Errorf("alerts test: %w", err)
	}
	a, err := alerts.New(nil, options)
	if err != nil {
		return fmt.Errorf("alerts test: %w", err)
	}
	defer a.Close()
	steps := []alertStep{}
	failed := a.Test(ctx, func(s alerts.Step) {
		steps = append(steps, alertStep{Of: s.Of, What: s.What, OK: s.Problem == "", Problem: s.Problem})
		if c.json() {
			return
		}
		if s.Problem != "" {
			fmt.Fprintf(p.Stdout, "FAILED  %s: %s: %s\n", s.Of, s.What, s.Problem)
			return
		}
		fmt.Fprintf(p.Stdout, "ok      %s: %s\n", s.Of, s.What)
	})
	if c.json() {
		if err := p.printJSON(ops.Page[alertStep]{Items: steps}); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("alerts test: %w", failed)
	}
	return nil
}
