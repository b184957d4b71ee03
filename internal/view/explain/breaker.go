package explain

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// Breaker is a breaker with the jobs that its API refused alone: nil without any, and for the breaker of a key.
type Breaker struct {
	breaker.Status
	Alone *jobs.RefusedAlone
}

// ReadBreaker reads a breaker of the client's namespace. Errors: as from [breaker.Namespace.Get], or Redis's.
func ReadBreaker(ctx context.Context, rdb redis.UniversalClient, client *jobs.Client, name string) (b Breaker, err error) {
	if b.Status, err = breaker.Namespace(client.Namespace()).Get(ctx, rdb, name); err != nil {
		return Breaker{}, err //nolint:wrapcheck // it says what failed
	}
	if strings.Contains(name, "/") {
		return b, nil
	}
	all, err := client.RefusedAlone(ctx, name)
	if found, ok := all[name]; ok {
		b.Alone = &found
	}
	return b, err //nolint:wrapcheck // likewise
}

// MarshalJSON adds refused_alone to the status, null without any.
func (b Breaker) MarshalJSON() ([]byte, error) {
	status, err := json.Marshal(b.Status)
	if err != nil {
		return nil, err //nolint:wrapcheck // of a part
	}
	alone, err := json.Marshal(b.Alone)
	return slices.Concat(status[:len(status)-1], []byte(`,"refused_alone":`), alone, []byte("}")), err
}
