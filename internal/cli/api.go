package cli

import (
	"context"

	"github.com/tidegate/tidegate/internal/app"
)

type apiCmd struct{}

// Help implements kong.HelpProvider.
func (apiCmd) Help() string {
	return `Serves the HTTP API (/v1, described by /docs and /openapi.json) and the dashboard on
LISTEN_ADDR until SIGTERM or SIGINT; a second signal ends it at once. Run as many as
you like behind a balancer: they keep nothing of their own. Jobs are published by
"tidegate worker".

On an address that others can reach it needs API_TOKENS_FILE:
  tidegate token new --name me --scope operate --file tokens.json
  API_TOKENS_FILE=tokens.json LISTEN_ADDR=:8080 tidegate api

Without tokens, on this machine only:
  tidegate api
  curl -sS http://127.0.0.1:8080/v1/jobs -H 'Content-Type: application/json' \
    -d '{"destination":"deviantart","payload":{"title":"Sunset"}}'

It speaks HTTP: what stands in front of it ends TLS. Logs go to stderr (LOG_LEVEL,
LOG_FORMAT).`
}

// Run serves until ctx ends.
func (c *apiCmd) Run(ctx context.Context, p *Process) error {
	return p.serve(ctx, false, app.RunAPI)
}
