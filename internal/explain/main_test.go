package explain

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
	redis.SetLogger(silent{}) // it reports every refused connection
	status := redistest.Main(m)
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			status = 1
		}
	}
	os.Exit(status)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
