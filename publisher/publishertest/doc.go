// Package publishertest tests publishers without Redis.
//
// [Publish] calls a handler for one job as a worker would (the destination's
// timeout, panics, cancelled contexts) and says what becomes of the job: it is
// completed, put off, retried or failed, when it may run again, and whether the
// answer counts against the circuit breaker. [Play] goes on until the job has
// ended, on a clock of its own, so that days of retries take no time.
//
//	func TestUploadWaitsForMaintenance(t *testing.T) {
//		job := publishertest.NewJob(jobs.New("gallery", picture, jobs.TTL(time.Hour)))
//		got := publishertest.Publish(t.Context(), uploader, job)
//		if got.Result != publisher.Rescheduled || got.Delay != 10*time.Minute {
//			t.Error(got)
//		}
//	}
//
// The code that judges a call is the worker's own. What a worker does around it
// is left out: the circuit breaker stays closed, since what opens it depends on
// other jobs, too; no worker dies; and people neither pause nor retry jobs.
//
// Handlers that wait or look at the clock are best tested in a bubble of
// testing/synctest, where a timeout of 30 s passes at once. Calls take no time on
// the clock of Play; where they should, sleep until the job's AvailableAt and call
// Publish with it again.
//
// Mistakes in a test, such as a spec that no client would accept, panic with a
// message that says what is wrong.
package publishertest
