package simulate

import (
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
