package store_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
)

func TestSystem(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"tidegate-alerts": true, "tidegate-callbacks": true,
		"": false, "tidegate": false, "tidegate-": false, "tidegate-alerts2": false, "alerts": false, "Tidegate-alerts": false,
	} {
		if got := store.System(name); got != want {
			t.Errorf("System(%q) = %t", name, got)
		}
		for _, queue := range store.DefaultNamespace.Queues(name) {
			if got := store.SystemQueue(queue); got != want {
				t.Errorf("SystemQueue(%q) = %t", queue, got)
			}
		}
	}
	for _, queue := range []string{"", "tidegate-alerts", "tidegate:tidegate-alerts:urgent", "Other:tidegate-alerts"} {
		if store.SystemQueue(queue) {
			t.Errorf("SystemQueue(%q) = true", queue)
		}
	}
}
