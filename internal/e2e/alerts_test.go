package e2e

import (
	"sync"
	"testing"
)

// alertsTest is a test of the alerting.
type alertsTest struct {
	name string
	run  func(*testing.T)
}

// Tests of the alerting wait for most of their time, and start many workers now and
// then: they run beside each other, and not beside those that hold instants to
// milliseconds. The longest begin first.
func TestAlerts(t *testing.T) {
	runBeside(t, 4, []alertsTest{
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
	})
}

// runBeside runs tests in their order, n at a time.
func runBeside(t *testing.T, n int, tests []alertsTest) {
	t.Helper()
	next := make(chan alertsTest)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for test := range next {
				t.Run(test.name, test.run)
			}
		})
	}
	for _, test := range tests {
		next <- test
	}
	close(next)
	group.Wait()
}
