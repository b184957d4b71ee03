package ops

import (
	"context"

	"github.com/tidegate/tidegate/jobs"
)

// Forecast says when the backlog of a destination is empty, and what will not make it. An unknown one is a
// *jobs.UnknownDestinationError.
func (s *System) Forecast(ctx context.Context, destination, key string) (*jobs.Forecast, error) {
	if err := mayWhole(ctx, destination); err != nil {
		return nil, err
	}
	return s.client.Forecast(ctx, destination, key)
}
