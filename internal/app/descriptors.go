package app

import (
	"context"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/config"
)

// descriptorsInReserve are for what a worker opens besides the connections of its calls and its
// pool of connections to Redis: subscriptions, listeners, scrapes, files and calls that end
// while others begin.
const descriptorsInReserve = 64

// warnOfFewDescriptors logs a warning if the process may open fewer files than it needs for
// all of its calls at once. Calls beyond that do not leave; see publisher.StateUnreachable.
func warnOfFewDescriptors(ctx context.Context, cfg *config.Config, rdb redis.UniversalClient, log *slog.Logger) {
	limit, ok := descriptorLimit()
	if need := descriptorsNeeded(cfg, poolSize(rdb)); ok && limit < need {
		log.WarnContext(ctx, "the limit of open files is too low for all calls at once; raise it (ulimit -n, LimitNOFILE) or lower DESTINATION_<i>_CONCURRENCY",
			"limit", limit, "needed", need)
	}
}

func descriptorsNeeded(cfg *config.Config, pool int) uint64 {
	need := descriptorsInReserve + pool
	for _, d := range cfg.Destinations {
		need += d.Concurrency
	}
	return uint64(need) //nolint:gosec // it is positive
}

// poolSize is how many connections the client opens at most, to one node.
func poolSize(rdb redis.UniversalClient) int {
	switch c := rdb.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 0
}
