package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// bar is a line of progress on stderr, which is drawn over. A nil one shows nothing.
type bar struct {
	out   io.Writer
	title string
	drawn time.Time
}

// newBar returns a bar with a title, or nil if stderr is not a terminal.
func (p *Process) newBar(title string) *bar {
	if !isTerminal(p.Stderr) {
		return nil
	}
	return &bar{out: p.Stderr, title: clip(title, 30)}
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond
	eraseBar = "\r\x1b[K"
	// A line that is wider than the terminal is cut.
	noWrap, wrap = "\x1b[?7l", "\x1b[?7h"
)

// show draws done of total, which is 0 if it is not known, and a text after it.
func (b *bar) show(done, total int64, text string) {
	if b == nil || time.Since(b.drawn) < barEvery {
		return
	}
	b.drawn = time.Now()
	picture := ""
	if total > 0 {
		full := int(min(done, total) * barWidth / total)
		picture = strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + " "
	}
	fmt.Fprint(b.out, noWrap+eraseBar+b.title+" "+picture+text+wrap)
}

// end takes the bar away.
func (b *bar) end() {
	if b != nil {
		fmt.Fprint(b.out, eraseBar)
	}
}
