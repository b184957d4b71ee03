package explain

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidegate/tidegate/internal/redistest"
)

func TestMain(m *testing.M) {
	status := redistest.Main(m)
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "after all tests:", err)
			status = 1
		}
	}
	os.Exit(status)
}
