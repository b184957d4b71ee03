package dashboard_test

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it reports every refused connection
	os.Exit(redistest.MainWithoutLeaks(m))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
