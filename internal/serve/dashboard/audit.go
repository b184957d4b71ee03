package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/tidegate/tidegate/internal/view/ops"
)

// mostActs bounds the acts of a page.
const mostActs = 100

// auditPage is the data of a page of what operators did.
type auditPage struct {
	Who, Action string
	Items       []ops.AuditEntry
	// Older is the URL of the next page, "" after the last one.
	Older string
}

func (d *Dashboard) audit(w http.ResponseWriter, r *http.Request) error {
	q := ops.AuditQuery{Who: r.FormValue("who"), Action: r.FormValue("action"), Cursor: r.FormValue("cursor"), Limit: mostActs}
	key := url.Values{"who": {q.Who}, "action": {q.Action}, "cursor": {q.Cursor}}
	return cached(d, w, r, "audit", key.Encode(), titled[*auditPage]("Audit"), func(ctx context.Context) (*auditPage, error) {
		found, err := d.ops.Audit(ctx, q)
		if errors.Is(err, ops.ErrCursor) {
			return nil, wrong("The address of this page is damaged.")
		}
		p := &auditPage{Who: q.Who, Action: q.Action, Items: found.Items}
		if found.Next != "" {
			p.Older = "/audit?" + url.Values{"who": {q.Who}, "action": {q.Action}, "cursor": {found.Next}}.Encode()
		}
		return p, err
	})
}
