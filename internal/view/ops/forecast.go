package ops

import (
	"context"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// Forecast says when the backlog of a destination is empty, and what will not make it. An unknown one is a
// *jobs.UnknownDestinationError.
func (s *System) Forecast(ctx context.Context, destination, key string) (*jobs.Forecast, error) {
	if err := mayWhole(ctx, destination); err != nil {
		return nil, err
	}
	f, err := s.client.Forecast(ctx, destination, key)
	if err != nil || f.Backlog == 0 {
		return f, err
	}
	breakers, err := s.AllBreakers(ctx, destination)
	if err != nil {
		return nil, err
	}
	b := breakers[0][0]
	held := explain.Holds(b, breakers[0][1:], nil, time.Now())
	said := b.State != breaker.Closed || strings.Contains(held, f.Binding) || b.Learned != nil && strings.HasPrefix(f.Binding, "about ")
	switch {
	case held != "" && said:
		f.Binding = held
	case held != "":
		f.Binding = held + "; longest by " + f.Binding
	}
	return f, nil
}
