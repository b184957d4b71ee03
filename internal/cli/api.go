package cli

import (
	"context"

	"github.com/tidegate/tidegate/internal/app"
)

type apiCmd struct{}

// Run serves until ctx ends.
func (c *apiCmd) Run(ctx context.Context, p *Process) error {
	return p.serve(ctx, false, app.RunAPI)
}
