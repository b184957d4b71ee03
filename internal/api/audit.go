package api

import (
	"context"
	"log/slog"
	"strings"

	"github.com/tidegate/tidegate/internal/access"
)

// audit logs what somebody did. Values that say nothing are left out.
func (a *api) audit(ctx context.Context, action string, attrs ...slog.Attr) {
	said := attrs[:0]
	for _, attr := range attrs {
		if attr.Value.Kind() != slog.KindString || attr.Value.String() != "" {
			said = append(said, attr)
		}
	}
	access.Audit(ctx, a.log, action, said...)
}

// byLocation orders what is wrong by its place.
func byLocation(a, b ProblemField) int { return strings.Compare(a.Location, b.Location) }
