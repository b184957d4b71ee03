package e2e

import "testing"

// Tests of the alerting wait for most of their time. The longest begin first.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"OfManyAreOne", alertsOfManyAreOne},
		{"WhileSlackIsInTrouble", alertsWhileSlackIsInTrouble},
		{"OfRedisLost", alertsOfRedisLost},
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
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}
