package store_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
)

func TestReasonOf(t *testing.T) {
	t.Parallel()
	r := store.ReasonOf(store.ReasonRetry, "2", "3", "failure")
	if r != "retry 2 3 failure" || r.Code() != "retry" || r.About() != "2 3 failure" {
		t.Errorf("%q of code %q about %q", r, r.Code(), r.About())
	}
}
