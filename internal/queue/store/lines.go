package store

// Lines says how a destination runs the jobs of a key: see docs/adr/0091-order-per-key.md.
type Lines struct {
	// ByKey: one at a time, in order, unless the job says otherwise; else only the jobs that ask for it.
	ByKey bool
	// Block: a job that fails keeps its place, so that the later ones of its key wait until it is retried or
	// cancelled. Else they go on.
	Block bool
}

// The orders that a job may ask for, in HeaderOrder and FieldOrder.
const (
	OrderKey  = "key"  // one job of its key at a time, in the order in which they became due
	OrderNone = "none" // at any time
)
