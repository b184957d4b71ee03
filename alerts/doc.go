// Package alerts notifies people of incidents: one message per incident, however many
// workers see it, and a page to on-call if it lasts.
//
// # How an alert comes about
//
// Every worker gets every transition of its breakers ([Alerts.Observe]) and enqueues a job
// for it in the reserved destination [Destination]. All give it the same id, so that there
// is one; it does not matter which worker lives on. Some worker's publisher runs it
// ([Alerts.Publish]): like any job it is rescheduled while its service is limited, comes back
// if the worker dies, and can be looked at.
//
// A job does not say what to send. Under a lock it reads the incidents of its subject, a
// breaker or all keys of a destination, compares them with what was sent, and sends what is
// missing, in order. So jobs may come late, twice, or in any order, and one of them makes up
// for any that is lost. Once a minute one worker scans for subjects that were missed.
//
// That a notice is about to be sent is saved first. If the answer is lost, a notifier that
// can looks for it before it is sent again.
//
// # Threads
//
// Incidents that follow each other closely have one thread: see thread.go. Its first notice
// is updated after failed probes and when the breaker closes; page, recovery and a new
// opening are replies. A pager gets a trigger and a resolve with the id of the thread as the
// dedup key. The keys of a destination share a thread, which does not page. Bursts of failed
// jobs, poison jobs, old pending jobs and undelivered alerts are notices of their own, each
// at most so often. That Redis cannot be reached, each worker notifies of by itself.
//
// Notices are data ([notice.Notice]); notifiers render them: see package notice.
//
// # Using it
//
//	to, err := slack.New(slack.Options{Token: token, Channel: "#publishing"})
//	…
//	a, err := alerts.New(rdb, alerts.Options{
//		Notifiers: []notice.Notifier{to}, Destinations: []string{"deviantart"},
//	})
//	…
//	a.Observe(&options) // of the publisher
//	p, err := publisher.New(rdb, options)
//	…
//	p.Handle("deviantart", h)
//	a.Serve(p)
//	go a.Run(ctx)
//
// Observers note and return: publishing is not slowed down.
package alerts
