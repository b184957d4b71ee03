package dashboard

import (
	"context"
	"log/slog"

	"github.com/tidegate/tidegate/internal/access"
)

// viewer is who looks, and what they may do, for the templates.
type viewer struct {
	// Name of the token; "local" without tokens.
	Name string
	// Read, Operate and Payloads are scopes.
	Read, Operate, Payloads bool
	// SignedIn is true of who can sign out.
	SignedIn bool
	// By is how histories name them.
	By string
}

// viewerOf is who looks; the zero viewer, who may do nothing, if that is not known.
func (d *Dashboard) viewerOf(ctx context.Context) viewer {
	id, ok := access.From(ctx)
	if !ok {
		return viewer{}
	}
	return viewer{
		Name: id.Name, By: id.By(), SignedIn: !d.guard.Open(),
		Read: id.Can(access.ScopeRead), Operate: id.Can(access.ScopeOperate), Payloads: id.Can(access.ScopePayloads),
	}
}

// audit notes what somebody did.
func (d *Dashboard) audit(ctx context.Context, action string, attrs ...slog.Attr) {
	access.Audit(ctx, d.log, action, attrs...)
}
