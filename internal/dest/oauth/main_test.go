package oauth_test

import (
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
