package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	status := redistest.Main(m)
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			status = 1
		}
	}
	os.Exit(status)
}

// silent drops what go-redis prints of closed connections.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
