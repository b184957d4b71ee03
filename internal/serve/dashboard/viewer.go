package dashboard

import (
	"context"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// viewer is the viewer of a page and their scopes, for the templates.
type viewer struct {
	// Name of the token; "local" without tokens.
	Name string
	// Read, Operate and Payloads are scopes.
	Read, Operate, Payloads bool
	// SignedIn is true with a session.
	SignedIn bool
	// By is the viewer's name in histories.
	By string
}

// viewerOf returns the viewer of a request; the zero viewer, without scopes, if unknown.
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
