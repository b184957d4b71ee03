package breaker

import (
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// validClient returns an error that wraps ErrClient if a breaker cannot be kept through rdb, as
// redispipe.CheckClient says.
func validClient(rdb redis.UniversalClient) error { return redispipe.CheckClient(rdb, ErrClient) }
