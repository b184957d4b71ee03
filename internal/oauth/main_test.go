package oauth_test

import (
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
