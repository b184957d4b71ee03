// Package alerts tells people about incidents: one Slack message per incident, however
// many workers see it, and a page to on-call when it lasts.
//
// # How an alert comes about
//
// Every worker hears of every transition of its breakers ([Alerts.OnEvent]) and enqueues
// a job for it in the reserved destination [Destination]. All of them give it the same
// id, so that there is one; it does not matter which worker lives on. Some worker's
// publisher runs it ([Alerts.Publish]): like any job it is put off while Slack is limited,
// comes back if the worker dies, and can be looked at.
//
// A job does not say what to send. It has its subject, a breaker or all keys of a
// destination, brought up to date: under a lock it reads the breaker's incidents, holds
// them against what Slack has been told, and sends what is missing, in order. So jobs may
// come late, twice, or in any order, and one of them makes up for any that is lost. Once
// a minute one worker looks for subjects of which people do not know all.
//
// That a message is about to be posted is written down first. If the answer is lost, the
// channel is looked through for the message's metadata before it is posted again.
//
// # What is told
//
// Incidents that follow each other closely are one case and one message: see case.go.
// It is updated after failed probes and when the breaker closes; the page, the recovery
// and a new opening are replies in its thread. PagerDuty gets a trigger and a resolve
// with the id of the case's first incident as the dedup key. Keys of a destination are
// summed up in one message and page nobody. Bursts of failed jobs, poison jobs, old
// pending jobs and alerts that were given up are told by jobs of their own, each at most
// so often; that Redis cannot be reached each worker tells by itself.
//
// # Using it
//
// In a worker, an Alerts is the handler of [Destination], gets the events of breakers
// and of the publisher, and runs beside it:
//
//	a, err := alerts.New(rdb, alerts.Options{
//		SlackToken: token, SlackChannel: "#publishing", Destinations: []string{"deviantart"},
//	})
//	…
//	p.Handle(alerts.Destination, a, publisher.Concurrency(alerts.Concurrency),
//		publisher.Timeout(alerts.Timeout), publisher.Breaker(alerts.breakerOptions()))
//	p.Handle("deviantart", h, publisher.Breaker(breaker.Options{OnEvent: a.OnEvent}))
//	go a.Run(ctx)
//
// None of it slows publishing down: what is told to an Alerts it takes note of, and
// returns.
package alerts
