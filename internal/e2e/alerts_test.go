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
		{"OfRedisLost", alertsOfRedisLost},
		{"WhileSlackIsInTrouble", alertsWhileSlackIsInTrouble},
		{"OutliveWhoDelivers", alertsOutliveWhoDelivers},
		{"KeepSecretsInTrouble", alertsKeepSecretsInTrouble},
		{"FiveWorkersOneIncident", alertsFiveWorkersOneIncident},
		{"OutliveTheOpener", alertsOutliveTheOpener},
		{"OutliveTheOnlyWorker", alertsOutliveTheOnlyWorker},
		{"OfWhatNobodySaw", alertsOfWhatNobodySaw},
		{"ByWebhookOnly", alertsByWebhookOnly},
		{"ByPagerDutyOnly", alertsByPagerDutyOnly},
		{"OfHostileAnswers", alertsOfHostileAnswers},
		{"KeepSecretsFromConnectionErrors", alertsKeepSecretsFromConnectionErrors},
		{"OfOldestPending", alertsOfOldestPending},
		{"OfPoison", alertsOfPoison},
		{"OfFailedBurst", alertsOfFailedBurst},
		{"WithABadToken", alertsWithABadToken},
		{"TestCommand", alertsTestCommand},
	}
	if long {
		// TestFlappingSharesAMessage and TestKeysAreOneMessage of alerts hold the same without waiting.
		tests = append(tests, row{"OfManyAreOne", alertsOfManyAreOne})
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}
