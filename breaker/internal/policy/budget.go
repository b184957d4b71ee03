package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	mostWindows   = 4        // kept of the windows that an API announces
	unnamed       = "-"      // id of the window of an API that announces one
	sameWindow    = 2000     // ms by which two announcements of one reset differ
	longestWindow = 86400000 // ms that a window is taken to last at most
)

// Window is one of the windows that an API announces.
type Window struct {
	ID                 string
	Left, Reset, Limit int64
}

// low is the budget from which on calls are metered: as many as can start before all instances know, and as many again.
func (t *turn) low() int64 { return 2 * max(1, t.capacity) }

// announced are the windows of the API: of several, the first binds.
func (b *breaker) announced() []Window {
	all := ReadWindows(b.Windows)
	if len(all) == 0 && b.Metered > 0 {
		all = []Window{{unnamed, b.BudgetLeft, b.BudgetReset, b.BudgetLimit}}
	}
	return all
}

// ReadWindows reads [Meter.Windows].
func ReadWindows(text string) (all []Window) {
	for words := strings.Fields(text); len(words) >= 4; words = words[4:] {
		all = append(all, Window{words[0], number(words[1]), number(words[2]), number(words[3])})
	}
	return all
}

func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// keepWindows stores the windows; without any, metering stops. The one with the fewest calls left binds, of equal ones
// the one that lasts longer.
func (b *breaker) keepWindows(all []Window) {
	if len(all) == 0 {
		b.clearBudget()
		return
	}
	slices.SortStableFunc(all, func(x, y Window) int {
		if x.Left != y.Left {
			return int(x.Left - y.Left)
		}
		return int(y.Reset - x.Reset)
	})
	b.BudgetLeft, b.BudgetReset, b.BudgetLimit, b.Windows = all[0].Left, all[0].Reset, all[0].Limit, ""
	if len(all) == 1 && all[0].ID == unnamed {
		return
	}
	var texts []string
	for _, w := range all[:min(len(all), mostWindows)] {
		texts = append(texts, fmt.Sprintf("%s %d %d %d", w.ID, w.Left, w.Reset, w.Limit))
	}
	b.Windows = strings.Join(texts, " ")
}

// nextWindow begins the window after one that has ended. A limit that is always low is taken to be whole again;
// otherwise the window is forgotten until its budget is low.
func (b *breaker) nextWindow() {
	if b.Metered == 0 {
		return
	}
	var all []Window
	ended := false
	for _, w := range b.announced() {
		if w.Reset > 0 && b.now >= float64(w.Reset) {
			ended = true
			w.Left, w.Reset = w.Limit, 0
		}
		if w.Reset > 0 || w.Limit <= b.low() && w.Left > 0 {
			all = append(all, w)
		}
	}
	if ended {
		b.dirty = true
		b.keepWindows(all)
	}
}

// spend takes one call from the windows if its response did not report them.
func (b *breaker) spend() {
	var all []Window
	for _, w := range b.announced() {
		w.Left = max(0, w.Left-1)
		if w.Left > 0 || w.Reset > 0 { // else the API says no more, and there is no instant to wait for
			all = append(all, w)
		}
	}
	b.dirty = true
	b.keepWindows(all)
}

// noteWindow applies what the API announces of a window to what is known of it, and returns that; false if it is not
// low. A window is identified by its end.
func (b *breaker) noteWindow(w Window, known bool, left int64, reset float64, limit int64) (Window, bool) {
	rest := 0.0
	if known && float64(w.Reset) > b.now {
		rest = float64(w.Reset)
	}
	switch {
	case rest > 0 && reset < rest-sameWindow:
		// Of an earlier window, or of another limit of the API: its call counts in this one, too.
		if w.Left > 0 {
			w.Left--
			b.dirty = true
		}
		return w, true
	case rest > 0 && reset <= rest+sameWindow:
		if left < w.Left || reset > rest {
			// The limit of a sliding window, or of a bucket, is whole later with each call.
			w.Left, w.Reset, b.dirty = min(left, w.Left), int64(max(rest, math.Ceil(reset))), true
		}
	case left > b.low():
		b.dirty = b.dirty || known
		return w, false
	default:
		if b.Metered == 0 {
			*b.joined = true
			b.Metered, b.Confirming = b.ms(), 0
		}
		w.Left, w.Reset, b.dirty = left, int64(math.Ceil(reset)), true
	}
	if limit > 0 && limit != w.Limit {
		w.Limit, b.dirty = limit, true
	}
	return w, true
}

// noteBudget applies the windows that the API announces, one or several, and opens until those are over that have no
// call left.
func (b *breaker) noteBudget(e *Event) {
	known := b.announced()
	var all []Window
	note := func(id string, left, resetIn, limit int64) {
		reset := b.now + min(float64(resetIn), max(b.o.MaxCooldown, longestWindow))
		i := slices.IndexFunc(known, func(w Window) bool { return w.ID == id })
		w := Window{}
		if i >= 0 {
			w = known[i]
		}
		if w, low := b.noteWindow(w, i >= 0, left, reset, limit); low {
			w.ID = id
			all = append(all, w)
		}
		if i >= 0 {
			known = slices.Delete(known, i, i+1)
		}
	}
	if e.Windows == "" {
		limit := e.Limit
		if limit == 0 && b.Windows == "" {
			limit = b.BudgetLimit
		}
		note(unnamed, e.Left, e.ResetIn, limit)
	}
	for _, w := range ReadWindows(e.Windows) {
		note(w.ID, w.Left, w.Reset, w.Limit)
	}
	for _, w := range known { // the call counts in these, too
		b.dirty = true
		if float64(w.Reset) > b.now {
			w.Left = max(0, w.Left-1)
			all = append(all, w)
		}
	}
	if len(all) > 0 || b.Metered > 0 {
		b.keepWindows(all)
	}
	if len(all) == 0 && e.Limit > 0 && e.Limit != b.BudgetLimit {
		b.BudgetLimit, b.dirty = e.Limit, true
	}
	ends := int64(0)
	for _, w := range all {
		if w.Left < 1 {
			ends = max(ends, w.Reset)
		}
	}
	if ends > 0 {
		b.openByBudget(ends)
	}
}

// openByBudget opens until the end of a window whose calls are used up.
func (b *breaker) openByBudget(ends int64) {
	b.open("budget", b.asked(float64(ends)-b.now))
	b.BudgetReset = ends
}

// reached notes which limit a refusal has met: the budget that it announces, if that has no call left.
func (b *breaker) reached(e *Event) {
	if e.Announces && e.Left < 1 && b.State.State == Open {
		b.BudgetReset = int64(math.Ceil(b.now + min(float64(e.ResetIn), max(b.o.MaxCooldown, longestWindow))))
		if b.BudgetLimit > 0 && e.Limit > 0 {
			b.BudgetLimit = e.Limit
		}
	}
}
