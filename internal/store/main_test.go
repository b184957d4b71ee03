package store_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	os.Exit(redistest.Main(m))
}

// silent drops what go-redis prints of closed connections.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
