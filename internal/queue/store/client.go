package store

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// ErrClient is wrapped by the errors of CheckClient.
var ErrClient = errors.New("the Redis client cannot be used")

// CheckClient returns an error if jobs cannot be kept through rdb, as redispipe.CheckClient says.
func CheckClient(rdb redis.UniversalClient) error { return redispipe.CheckClient(rdb, ErrClient) }
