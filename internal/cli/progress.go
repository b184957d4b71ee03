package cli

import (
	"fmt"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// progress is the bar of a file that is being enqueued. A nil one shows nothing.
type progress struct {
	container *mpb.Progress
	bar       *mpb.Bar
	known     bool // the size of the file
	lines     atomic.Int64
}

// newProgress returns a bar on stderr, or nil if that is no terminal. size is the
// file's in bytes; 0 if unknown.
func (p *Process) newProgress(size int64) *progress {
	if !isTerminal(p.Stderr) {
		return nil
	}
	b := &progress{known: size > 0}
	b.container = mpb.New(mpb.WithOutput(p.Stderr), mpb.WithWidth(40))
	count := decor.Any(func(decor.Statistics) string { return fmt.Sprintf("  %d lines", b.lines.Load()) })
	title := mpb.PrependDecorators(decor.Name("enqueueing "))
	if b.known {
		style := mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░")
		b.bar = b.container.New(size, style, title, mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), count))
	} else {
		b.bar = b.container.New(0, mpb.SpinnerStyle(), title, mpb.AppendDecorators(count))
	}
	return b
}

// reached moves the bar: bytes of the file read, and lines answered.
func (b *progress) reached(bytes int64, lines int) {
	if b == nil {
		return
	}
	b.lines.Store(int64(lines))
	if b.known {
		b.bar.SetCurrent(bytes)
	}
}

// end takes the bar away and waits until that is drawn.
func (b *progress) end() {
	if b == nil {
		return
	}
	b.bar.Abort(true)
	b.container.Wait()
}
