package cli

import (
	"io"
	"os"

	"github.com/vbauerster/mpb/v8/cwriter"
)

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && cwriter.IsTerminal(int(f.Fd()))
}

// terminalSize returns columns and lines of a terminal; 0 where it has none.
func terminalSize(w io.Writer) (columns, lines int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	columns, lines, err := cwriter.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}
