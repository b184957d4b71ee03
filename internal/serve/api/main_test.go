package api

import (
	"flag"
	"os"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// update makes TestOpenAPI write the document instead of comparing it.
var update = flag.Bool("update", false, "write openapi.json")

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(redistest.Main(m))
}
