package jobs

import "github.com/tidegate/tidegate/internal/queue/store"

// Ordering says how the jobs of a key are called.
type Ordering string

// The orders. A job without one is called as its destination says; see ORDER in docs/limits.md.
const (
	// OrderKey calls the jobs of a key one at a time, in the order in which they become due. Each priority has an
	// order of its own. A job that waits for a retry keeps its place.
	OrderKey Ordering = store.OrderKey
	// OrderNone calls the job at any time, also beside others of its key.
	OrderNone Ordering = store.OrderNone
)

// Order sets how the job is called among the others of its key, in place of what its destination says. OrderKey needs
// a [Key].
func Order(o Ordering) Option { return func(s *Spec) { s.Order = o } }
