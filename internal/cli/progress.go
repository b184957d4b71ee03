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
		b.bar = b.container.New(size, barStyle(), title, mpb.AppendDecorators(decor.Percentage(decor.WC{W: 5}), count))
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

// batchBar is the bar of a batch that is waited for. A nil one shows nothing.
type batchBar struct {
	container *mpb.Progress
	bar       *mpb.Bar
	counts    atomic.Pointer[string]
}

// newBatchBar returns a bar on stderr, or nil if that is no terminal.
func (p *Process) newBatchBar(batch string) *batchBar {
	if !isTerminal(p.Stderr) {
		return nil
	}
	b := &batchBar{}
	b.counts.Store(new(string))
	b.container = mpb.New(mpb.WithOutput(p.Stderr), mpb.WithWidth(40))
	counts := decor.Any(func(decor.Statistics) string { return *b.counts.Load() })
	// Of 0 until the batch is known: such a bar never ends by itself, and more
	// jobs may come.
	b.bar = b.container.New(0, barStyle(), mpb.PrependDecorators(decor.Name(clip(batch, 30)+" ")), mpb.AppendDecorators(counts))
	return b
}

// reached shows the state of the batch.
func (b *batchBar) reached(s *jobs.BatchStatus) {
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
	b.bar.SetTotal(int64(s.Total), false)
	b.bar.SetCurrent(int64(endedOf(s)))
}

// end takes the bar away and waits until that is drawn.
func (b *batchBar) end() {
	if b == nil {
		return
	}
	b.bar.Abort(true)
	b.container.Wait()
}
