// Package alerts notifies people of incidents: one message per incident, however many
// workers see it, and a page to on-call if it lasts.
//
// # Detection and delivery
//
// Every worker gets every transition of its breakers ([Alerts.Observe]) and enqueues a job
// for it in the reserved destination [Destination]. All give it the same id, so that there
// is one; it does not matter which worker survives. A worker's publisher runs it
// ([Alerts.Publish]): like any job it is rescheduled while its service is limited, is
// recovered if the worker dies, and is listed.
//
// A job does not hold its notice. Under a lock it reads the incidents of its subject, a
// breaker or all keys of a destination, compares them with what was sent, and sends what is
// missing, in order. So jobs may come late, twice, or in any order, and any of them replaces
// lost ones. Once a minute one worker scans for subjects that were missed.
//
// A notice is recorded after it was sent. If the response is lost, or the worker dies in between, it is
// sent again: at least once.
//
// # Threads
//
// Each incident has a thread: see thread.go. Its first notice is updated after failed probes and when the
// breaker closes; page and recovery are replies. A pager gets a trigger and a resolve with the id of the
// incident as the dedup key. The keys of a destination that are limited share a thread, which does not page, and
// those whose credentials are refused another one. Every 30 seconds one worker looks for destinations
// that no worker reaches or serves: those are single notices, one when that begins and one when it
// ends. A failed job that blocks the later jobs of its key is a single notice, too, at most one for a destination within
// 10 minutes: see blocked.go. That Redis cannot be reached is reported by each worker to pagers, and by one to the others.
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
// Observers record and return: they do not delay publishing. A nil context panics, as in the
// standard library.
package alerts
