package hint

import (
	"strings"
	"time"
)

// fields are the names of one family's header fields in the form in which
// http.Header keeps them, which costs no conversion; unused ones are empty.
type fields struct{ limit, remaining, reset, resetAfter, next string }

// read makes a hint of the fields, one number or instant in each. Of a field with several
// lines and items, as proxies cause it, it takes the fewest calls and the longest time.
func (f fields) read(a Answer) Hint {
	remaining, hasRemaining := least(a.Header[f.remaining])
	usedUp := hasRemaining && remaining < 1
	reset, hasReset := f.untilReset(a, usedUp)
	var out Hint
	// With calls left, the call was refused for another reason.
	if hasReset && (usedUp || !hasRemaining) {
		out.Wait = reset
	}
	if !hasRemaining {
		return out
	}
	out.Budget = &Budget{Remaining: clampInt(remaining), Reset: reset}
	if limits := a.Header[f.limit]; len(limits) > 0 {
		if limit, ok := number(firstItem(limits[0])); ok {
			out.Budget.Limit = clampInt(limit)
			out.Budget = a.unless0of0(out.Budget)
		}
	}
	return out
}

// unless0of0 returns the budget, or nil if its limit is 0 although the call was accepted: some APIs say in this way
// that there is no limit.
func (a Answer) unless0of0(b *Budget) *Budget {
	if !a.Limited && b.Limit == 0 && b.Remaining == 0 {
		return nil
	}
	return b
}

// untilReset reads how long the window lasts. usedUp says that no calls are left.
func (f fields) untilReset(a Answer, usedUp bool) (time.Duration, bool) {
	r := reader{answer: a, unit: time.Second}
	if usedUp {
		r.zero = soonest
	}
	for _, name := range [...]string{f.resetAfter, f.reset, f.next} { // the first is the most exact
		if d, ok := r.longest(a.Header[name]); ok {
			return d, true
		}
	}
	return 0, false
}

// least returns the smallest number of the lines' items.
func least(lines []string) (f float64, ok bool) {
	for _, line := range lines {
		for item := range strings.SplitSeq(line, ",") {
			if got, valid := number(item); valid && (!ok || got < f) {
				f, ok = got, true
			}
		}
	}
	return f, ok
}

func firstItem(line string) string {
	item, _, _ := strings.Cut(line, ",")
	return item
}

// number reads an item without its parameters: "100;w=60" is 100.
func number(item string) (float64, bool) {
	value, _, _ := strings.Cut(item, ";")
	return decimal(strings.TrimSpace(value))
}

func clampInt(f float64) int {
	const most = 1 << 31
	return int(max(0, min(f, most)))
}
