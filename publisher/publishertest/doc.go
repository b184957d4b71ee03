// Package publishertest tests publishers without Redis.
//
// [Publish] calls a handler for one job as a worker would (the destination's
// timeout, panics, cancelled contexts) and returns the outcome of the job (completed,
// rescheduled, retried or failed), when it may run again, and whether the response counts as
// a failure for the circuit breaker. [Play] repeats that until the job has finished, on its
// own clock, so that days of retries take no time.
//
//	func TestUploadWaitsForMaintenance(t *testing.T) {
//		job := publishertest.NewJob(jobs.New("gallery", picture, jobs.TTL(time.Hour)))
//		got := publishertest.Publish(t.Context(), uploader, job)
//		if got.Result != publisher.Rescheduled || got.Delay != 10*time.Minute {
//			t.Error(got)
//		}
//	}
//
// Handlers that enqueue jobs get a client from publisher.Client: see [Client].
//
// The code that classifies a call is the worker's. The rest of a worker is not simulated: the
// circuit breaker stays closed, since other jobs can open it too; no worker dies; no job is
// paused or retried by a request.
//
// Handlers that wait or look at the clock are best tested in a bubble of
// testing/synctest, where a timeout of 30 s passes at once. Calls take no time on
// the clock of Play; where they should, sleep until the job's AvailableAt and call
// Publish with it again.
//
// Errors of a test, such as a spec that is not valid, panic with a message.
package publishertest
