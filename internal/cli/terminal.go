package cli

import (
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
