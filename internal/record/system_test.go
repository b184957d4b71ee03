package record_test

import (
	"testing"

	"github.com/tidegate/tidegate/internal/record"
)

func TestSystem(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"tidegate-alerts": true, "tidegate-callbacks": true,
		"": false, "tidegate": false, "tidegate-": false, "tidegate-alerts2": false, "alerts": false, "Tidegate-alerts": false,
	} {
		if got := record.System(name); got != want {
			t.Errorf("System(%q) = %t", name, got)
		}
		for _, queue := range record.Queues(name) {
			if got := record.SystemQueue(queue); got != want {
				t.Errorf("SystemQueue(%q) = %t", queue, got)
			}
		}
	}
	for _, queue := range []string{"", "tidegate-alerts", "tidegate:tidegate-alerts:urgent", "other:tidegate-alerts"} {
		if record.SystemQueue(queue) {
			t.Errorf("SystemQueue(%q) = true", queue)
		}
	}
}
