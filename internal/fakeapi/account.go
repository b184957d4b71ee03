package fakeapi

import "time"

// account is one budget, and until when callers have been told that nothing is left
// of it.
type account struct {
	budget budget
	told   time.Time
}

// told is what an answer makes known when it is handed out.
type told struct {
	of    *account
	until time.Time
}

// tell makes it known; the caller holds the API's mu.
func (t told) tell() {
	if t.until.After(t.of.told) {
		t.of.told = t.until
	}
}

// take asks the budget for a call, notes in its receipt whether the caller could have
// known better, and adds what the answer will tell.
func (a *account) take(receipt *Receipt, hints Hint, tells *[]told) verdict {
	v := a.budget.take(receipt.At)
	if !v.ok && receipt.At.Before(a.told) {
		receipt.Wasted = true
	}
	if !v.ok || v.remaining == 0 && hints&counts != 0 {
		*tells = append(*tells, told{a, receipt.At.Add(v.reset)})
	}
	return v
}
