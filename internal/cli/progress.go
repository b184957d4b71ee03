package cli

import (
	"fmt"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/tidegate/tidegate/jobs"
)

// barStyle is how a bar of a known length looks.
func barStyle() mpb.BarStyleComposer {
	return mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░")
}

// bar is a progress bar on stderr. A nil one shows nothing.
type bar struct {
	container *mpb.Progress
	*mpb.Bar
	known  bool // the size
	counts atomic.Pointer[string]
}

// newBar returns a bar with a title, or nil if stderr is not a terminal. filled draws it.
func (p *Process) newBar(size int64, known bool, filler mpb.BarFillerBuilder, title string, decorators ...decor.Decorator) *bar {
	if !isTerminal(p.Stderr) {
		return nil
	}
	b := &bar{known: known, container: mpb.New(mpb.WithOutput(p.Stderr), mpb.WithWidth(40))}
	b.counts.Store(new(string))
	decorators = append(decorators, decor.Any(func(decor.Statistics) string { return *b.counts.Load() }))
	b.Bar = b.container.New(size, filler, mpb.PrependDecorators(decor.Name(title+" ")), mpb.AppendDecorators(decorators...))
	return b
}

// end takes the bar away and waits until that is drawn.
func (b *bar) end() {
	if b != nil {
		b.Abort(true)
		b.container.Wait()
	}
}

// newFileBar returns the bar of a file that is being enqueued, of a size in bytes; 0 if
// unknown.
func (p *Process) newFileBar(size int64) *bar {
	if size == 0 {
		return p.newBar(0, false, mpb.SpinnerStyle(), "enqueueing")
	}
	return p.newBar(size, true, barStyle(), "enqueueing", decor.Percentage(decor.WC{W: 5}))
}

// reachedLine moves the bar of a file: bytes of it read, and lines answered.
func (b *bar) reachedLine(bytes int64, lines int) {
	if b == nil {
		return
	}
	text := fmt.Sprintf("  %d lines", lines)
	b.counts.Store(&text)
	if b.known {
		b.SetCurrent(bytes)
	}
}

// newBatchBar returns the bar of a batch that is waited for. It is of 0 until the batch is
// known: such a bar never ends by itself, and more jobs may come.
func (p *Process) newBatchBar(batch string) *bar {
	return p.newBar(0, false, barStyle(), clip(batch, 30))
}

// reachedStatus shows the state of the batch.
func (b *bar) reachedStatus(s *jobs.BatchStatus) {
	if b == nil {
		return
	}
	text := fmt.Sprintf(" %d of %d", endedOf(s), s.Total)
	for _, status := range jobs.Statuses {
		if n := s.Counts[status]; n > 0 && status != jobs.Completed {
			text += fmt.Sprintf(", %d %s", n, status)
		}
	}
	b.counts.Store(&text)
	b.SetTotal(int64(s.Total), false)
	b.SetCurrent(int64(endedOf(s)))
}
