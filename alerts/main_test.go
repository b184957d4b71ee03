package alerts

import (
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// key is a key of alerting in the default namespace.
func key(parts ...string) string { return stateStore{ns: store.DefaultNamespace}.key(parts...) }
