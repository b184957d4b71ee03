package e2e

import "testing"

// Tests of the alerting wait for most of their time. The longest begin first.
func TestAlerts(t *testing.T) {
	t.Parallel()
	type row struct {
		name string
		run  func(*testing.T)
	}
	tests := []row{
		{"WhileSlackIsInTrouble", alertsWhileSlackIsInTrouble},
		{"FiveWorkersOneIncident", alertsFiveWorkersOneIncident},
		{"OutliveTheOpener", alertsOutliveTheOpener},
		{"TestCommand", alertsTestCommand},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}
