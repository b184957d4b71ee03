package demo

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/breaker"
)

// Screen is where the show is shown.
type Screen struct {
	Out io.Writer
	// Live redraws a picture below the story; it needs a terminal. Otherwise there
	// are plain lines only.
	Live bool
	// Colour paints states and lines of the live picture.
	Colour bool
	// Columns returns the width of the terminal, 0 if unknown.
	Columns func() int

	drawn int // lines of the picture that is on the terminal
}

// Escape sequences of terminals (ECMA-48).
const (
	escReset  = "\x1b[0m"
	escBold   = "\x1b[1m"
	escDim    = "\x1b[2m"
	escRed    = "\x1b[31m"
	escGreen  = "\x1b[32m"
	escYellow = "\x1b[33m"
	escCyan   = "\x1b[36m"
	escClear  = "\x1b[J" // from the cursor to the end
)

var tones = map[tone]string{good: escGreen, bad: escRed, caution: escYellow, aloud: escCyan}

// paint colours a text.
func (s *Screen) paint(colour, text string) string {
	if !s.Live || !s.Colour || colour == "" || text == "" {
		return text
	}
	return colour + text + escReset
}

// line is one line of the story.
func (s *Screen) line(e event) string {
	return s.paint(escDim, e.at.Format(time.TimeOnly)) + "  " + s.paint(tones[e.tone], s.cut(e.text, len("15:04:05  ")))
}

// show writes the story's new lines and, if live, the picture below them.
func (s *Screen) show(news []event, picture []string) error {
	var b bytes.Buffer
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r%s", s.drawn, escClear)
	}
	for _, e := range news {
		b.WriteString(s.line(e) + "\n")
	}
	s.drawn = 0
	if s.Live {
		for _, l := range picture {
			b.WriteString(l + "\n")
		}
		s.drawn = len(picture)
	}
	if b.Len() == 0 {
		return nil
	}
	if _, err := s.Out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("demo: write: %w", err)
	}
	return nil
}

// cut shortens a text so that the line it is on, of which used characters are
// taken, is not broken by the terminal: the picture would move.
func (s *Screen) cut(text string, used int) string {
	columns := 0
	if s.Live && s.Columns != nil {
		columns = s.Columns()
	}
	room := columns - used - 1
	if columns == 0 || utf8.RuneCountInString(text) <= room {
		return text
	}
	return string([]rune(text)[:max(0, room)])
}

const (
	barWidth   = 30
	labelWidth = 11
)

// picture draws a frame.
func (s *Screen) picture(o Options, f frame, now time.Time) []string {
	label := func(name string) string { return fmt.Sprintf("  %-*s", labelWidth, name) }
	wasted := s.paint(escRed, fmt.Sprintf("%d wasted", f.wasted))
	if f.wasted == 0 {
		wasted = "none wasted"
	}
	var slots strings.Builder
	for i, n := range f.inFlight {
		if i > 0 {
			slots.WriteString("  ")
		}
		width := min(o.Concurrency, 10)
		busy := min(n, width)
		slots.WriteString(s.paint(escGreen, strings.Repeat("▪", busy)) + s.paint(escDim, strings.Repeat("·", width-busy)))
	}
	lines := []string{
		"",
		label("breaker") + s.state(f.view, now),
		label("published") + s.bar(f.completed, o.Jobs, escGreen) + fmt.Sprintf(" %d of %d", f.completed, o.Jobs),
		label("waiting") + s.bar(f.waiting, o.Jobs, escYellow) + fmt.Sprintf(" %d", f.waiting),
		label("calls") + fmt.Sprintf("%d, %s", f.calls, wasted),
	}
	if s.Columns == nil || s.Columns() == 0 || labelWidth+2+o.Workers*(min(o.Concurrency, 10)+2) < s.Columns() {
		lines = append(lines, label("workers")+slots.String())
	}
	return lines
}

func (s *Screen) bar(n, of int, colour string) string {
	full := 0
	if of > 0 {
		full = (n*barWidth + of - 1) / of
	}
	full = max(0, min(full, barWidth))
	return s.paint(colour, strings.Repeat("█", full)) + s.paint(escDim, strings.Repeat("░", barWidth-full))
}

// state is the breaker in short.
func (s *Screen) state(v breaker.View, now time.Time) string {
	switch v.State {
	case breaker.Open:
		return s.paint(escBold+escRed, "OPEN") + fmt.Sprintf("       no calls for %.1f s", max(0, v.OpenUntil.Sub(now).Seconds()))
	case breaker.HalfOpen:
		return s.paint(escBold+escYellow, "HALF_OPEN") + "  one call tests recovery"
	}
	return s.paint(escBold+escGreen, "CLOSED") + "     calls go through"
}

// status is the picture as one plain line.
func status(o Options, f frame, now time.Time) string {
	state := f.view.State.String()
	if f.view.State == breaker.Open {
		state += fmt.Sprintf(" for %.1f s", max(0, f.view.OpenUntil.Sub(now).Seconds()))
	}
	return fmt.Sprintf("published %d of %d, calls %d, wasted %d, breaker %s", f.completed, o.Jobs, f.calls, f.wasted, state)
}
