package dashboard

import (
	"strings"
	"testing"
)

// Cursors grow with the lists that they go through: each has its own page in the cache.
func TestLongCursorsDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	if digest(long+"a") == digest(long+"b") || digest("") != "" {
		t.Error("two cursors have one name")
	}
}
