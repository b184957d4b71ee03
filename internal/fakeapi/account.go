package fakeapi

import "time"

// account is one budget, and until when an answer has announced that nothing is left.
type account struct {
	budget budget
	empty  time.Time
}

// announcement is what an answer announces when it is sent.
type announcement struct {
	of    *account
	until time.Time
}

// apply applies it; the caller holds the API's mu.
func (t announcement) apply() {
	if t.until.After(t.of.empty) {
		t.of.empty = t.until
	}
}

// take takes a call from the budget, records in its receipt whether the caller could have known
// the limit, and adds what the response will announce.
func (a *account) take(receipt *Receipt, hints Hint, announced *[]announcement) verdict {
	v := a.budget.take(receipt.At)
	if !v.ok && receipt.At.Before(a.empty) {
		receipt.Wasted = true
	}
	if !v.ok || v.remaining == 0 && hints&counts != 0 {
		*announced = append(*announced, announcement{a, receipt.At.Add(v.reset)})
	}
	return v
}
