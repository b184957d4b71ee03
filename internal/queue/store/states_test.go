package store_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// The table of states agrees with the statuses that users see.
func TestStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]jobs.Status{
		store.StateWaiting: jobs.Waiting, store.StatePending: jobs.Pending, store.StateScheduled: jobs.Pending,
		store.StateHeld: jobs.Pending, store.StateActive: jobs.Running,
		store.StateRetry: jobs.RetryPending, store.StatePaused: jobs.Paused, store.StateCompleted: jobs.Completed,
		store.StateFailed: jobs.Failed, store.StateCancelled: jobs.Cancelled, store.StateExpired: jobs.Expired,
	} {
		if got := jobs.Status(store.StatusOf(state)); got != want {
			t.Errorf("%s is %q to users, want %q", state, got, want)
		}
		if got := store.Final(state); got != want.Final() {
			t.Errorf("%s is final: %t, the status %s says %t", state, got, want, want.Final())
		}
	}
}
