package cli

import (
	"os"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && cwriter.IsTerminal(int(f.Fd()))
}
