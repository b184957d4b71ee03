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

type window struct {
	id                 string
	left, reset, limit int64
}

// low is the budget from which on calls are metered: as many as can start before all instances know, and as many again.
func (t *turn) low() int64 { return 2 * max(1, t.capacity) }

// announced are the windows of the API: of several, the first binds.
func (b *breaker) announced() []window {
	all := readWindows(b.Windows)
	if len(all) == 0 && b.Metered > 0 {
		all = []window{{unnamed, b.BudgetLeft, b.BudgetReset, b.BudgetLimit}}
	}
	return all
}

func readWindows(text string) (all []window) {
	for words := strings.Fields(text); len(words) >= 4; words = words[4:] {
		all = append(all, window{words[0], number(words[1]), number(words[2]), number(words[3])})
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
func (b *breaker) keepWindows(all []window) {
	if len(all) == 0 {
		b.clearBudget()
		return
	}
	slices.SortStableFunc(all, func(x, y window) int {
		if x.left != y.left {
			return int(x.left - y.left)
		}
		return int(y.reset - x.reset)
	})
	b.BudgetLeft, b.BudgetReset, b.BudgetLimit, b.Windows = all[0].left, all[0].reset, all[0].limit, ""
	if len(all) == 1 && all[0].id == unnamed {
		return
	}
	var texts []string
	for _, w := range all[:min(len(all), mostWindows)] {
		texts = append(texts, fmt.Sprintf("%s %d %d %d", w.id, w.left, w.reset, w.limit))
	}
	b.Windows = strings.Join(texts, " ")
}

// nextWindow begins the window after one that has ended. A limit that is always low is taken to be whole again;
// otherwise the window is forgotten until its budget is low.
func (b *breaker) nextWindow() {
	if b.Metered == 0 {
		return
	}
	var all []window
	ended := false
	for _, w := range b.announced() {
		if w.reset > 0 && b.now >= float64(w.reset) {
			ended = true
			w.left, w.reset = w.limit, 0
		}
		if w.reset > 0 || w.limit <= b.low() && w.left > 0 {
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
	var all []window
	for _, w := range b.announced() {
		w.left = max(0, w.left-1)
		if w.left > 0 || w.reset > 0 { // else the API says no more, and there is no instant to wait for
			all = append(all, w)
		}
	}
	b.dirty = true
	b.keepWindows(all)
}

// noteWindow applies what the API announces of a window to what is known of it, and returns that; false if it is not
// low. A window is identified by its end.
func (b *breaker) noteWindow(w window, known bool, left int64, reset float64, limit int64) (window, bool) {
	rest := 0.0
	if known && float64(w.reset) > b.now {
		rest = float64(w.reset)
	}
	switch {
	case rest > 0 && reset < rest-sameWindow:
		// Of an earlier window, or of another limit of the API: its call counts in this one, too.
		if w.left > 0 {
			w.left--
			b.dirty = true
		}
		return w, true
	case rest > 0 && reset <= rest+sameWindow:
		if left < w.left || reset > rest {
			// The limit of a sliding window, or of a bucket, is whole later with each call.
			w.left, w.reset, b.dirty = min(left, w.left), int64(max(rest, math.Ceil(reset))), true
		}
	case left > b.low():
		b.dirty = b.dirty || known
		return w, false
	default:
		if b.Metered == 0 {
			*b.joined = true
			b.Metered, b.Confirming = b.ms(), 0
		}
		w.left, w.reset, b.dirty = left, int64(math.Ceil(reset)), true
	}
	if limit > 0 && limit != w.limit {
		w.limit, b.dirty = limit, true
	}
	return w, true
}

// noteBudget applies the windows that the API announces, one or several, and opens until those are over that have no
// call left.
func (b *breaker) noteBudget(e *Event) {
	known := b.announced()
	var all []window
	note := func(id string, left, resetIn, limit int64) {
		reset := b.now + min(float64(resetIn), max(b.o.MaxCooldown, longestWindow))
		i := slices.IndexFunc(known, func(w window) bool { return w.id == id })
		w := window{}
		if i >= 0 {
			w = known[i]
		}
		if w, low := b.noteWindow(w, i >= 0, left, reset, limit); low {
			w.id = id
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
	for _, w := range readWindows(e.Windows) {
		note(w.id, w.left, w.reset, w.limit)
	}
	for _, w := range known { // the call counts in these, too
		b.dirty = true
		if float64(w.reset) > b.now {
			w.left = max(0, w.left-1)
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
		if w.left < 1 {
			ends = max(ends, w.reset)
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
