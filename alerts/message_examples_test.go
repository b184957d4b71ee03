package alerts

import (
	"slices"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain/words"
	"github.com/tidegate/tidegate/jobs"
)

// example is a message as it may be in real life: the golden tests hold its JSON, the
// pictures of the documentation are made of it.
type example struct {
	name   string // of its file
	title  string // of its picture; "" for none
	thread string // what it replies to
	posted time.Time
	notice *notice.Notice
	short  bool // as a webhook shows it
}

// noon is when the stories of the examples begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func afterNoon(d time.Duration) time.Time { return noon.Add(d) }

// shopLimited is a breaker that the API has opened.
func shopLimited() situation {
	return situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop",
		Thread: "0199a1b2", Incident: "0199a1b2", State: breaker.Open, Cause: breaker.CauseThreshold, By: "worker-2:4711",
		Since: afterNoon(0), Until: afterNoon(5 * time.Minute), Openings: 1, Wasted: 3, Rescheduled: 3, Backlog: 1204, Expiring: 17,
		Answers: []refusal{
			{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-7", Status: 429, Body: `{"error":"rate_limit_exceeded","message":"You have made too many requests."}`},
			{At: afterNoon(-400 * time.Millisecond), Destination: "shop", Job: "post-6", Status: 429, Body: `{"error":"rate_limit_exceeded","message":"You have made too many requests."}`},
			{At: afterNoon(-900 * time.Millisecond), Destination: "shop", Job: "post-5", Status: 429},
		},
	}
}

func changed(s situation, change func(*situation)) situation {
	s.Answers, s.Keys = slices.Clone(s.Answers), slices.Clone(s.Keys)
	change(&s)
	return s
}

func shopHinted() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.Until, s.Wasted, s.Rescheduled, s.Expiring = breaker.CauseHint, afterNoon(12*time.Minute+30*time.Second), 1, 1, 0
		s.Answers = []refusal{{
			At: afterNoon(0), Destination: "shop", Job: "post-7", Status: 429, RetryAfter: 12*time.Minute + 30*time.Second,
			Body: `<html><head><title>429 Too Many Requests</title></head></html>`,
		}}
	})
}

func shopProbeFailed() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Now, s.Until = afterNoon(10*time.Minute+2*time.Second), afterNoon(15*time.Minute+2*time.Second)
		s.Probes, s.Wasted, s.Rescheduled, s.Backlog, s.Expiring = 2, 5, 5, 1377, 1
		s.Answers[0].At = afterNoon(10 * time.Minute)
		s.Answers[1].At = afterNoon(5 * time.Minute)
		s.Answers[2].At = afterNoon(-100 * time.Millisecond)
	})
}

func shopOnTrial() situation {
	return changed(shopLimited(), func(s *situation) { s.State, s.Now = breaker.HalfOpen, afterNoon(5*time.Minute) })
}

func shopTripped() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.By, s.Reason, s.Until = breaker.CauseManual, "ann@laptop", "They move their servers until about two o'clock", time.Time{}
		s.Wasted, s.Rescheduled, s.Expiring, s.Answers, s.Backlog = 0, 0, -1, nil, 1
	})
}

func shopFlaps() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Now, s.Until = afterNoon(9*time.Minute), afterNoon(14*time.Minute)
		s.Openings, s.Cause, s.Wasted, s.Rescheduled, s.Probes = 4, breaker.CauseRamp, 14, 21, 0
		for i := range s.Answers {
			s.Answers[i].At = afterNoon(9*time.Minute - time.Duration(i+1)*time.Second)
		}
	})
}

func shopRecovered() situation {
	return changed(shopProbeFailed(), func(s *situation) {
		s.Now, s.State, s.Until = afterNoon(15*time.Minute+4*time.Second), breaker.Closed, time.Time{}
		s.Ended, s.EndedBy, s.Expiring, s.Backlog = afterNoon(15*time.Minute+3*time.Second), breaker.CauseSuccess, -1, 1377
		s.Answers = nil
	})
}

func keysLimited() situation {
	s := situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop/*", Thread: "keys-1", State: breaker.Open, Cause: breaker.CauseHint,
		Since: afterNoon(-6 * time.Minute), Openings: 1, Wasted: 14, Probes: 2, Backlog: 3310, Expiring: -1, KeysOpen: 12, KeysSeen: 14,
		Answers: []refusal{{
			At: afterNoon(0), Destination: "shop", Key: "alice", Job: "post-7", Status: 429, RetryAfter: 10 * time.Minute, Body: `{"error":"user_limit"}`,
		}},
	}
	for i, k := range []string{"alice", "bob", "customer-4711", "dora@example.com", "emil"} {
		s.Keys = append(s.Keys, keySituation{
			Key: k, Since: afterNoon(time.Duration(i-6) * time.Minute), Until: afterNoon(time.Duration(10+i) * time.Minute), Cause: breaker.CauseHint, Held: 40 - 13*i,
		})
	}
	s.Keys[2].Cause, s.Keys[2].Held = breaker.CauseThreshold, 1
	s.Keys[3].Held, s.Keys[4].Held = 1800, -1
	s.Keys[4].Until, s.Keys[4].Cause = time.Time{}, breaker.CauseManual
	return s
}

func keysOver() situation {
	return changed(keysLimited(), func(s *situation) {
		s.State, s.KeysOpen, s.Keys, s.Answers, s.Wasted, s.Probes = breaker.Closed, 0, nil, nil, 0, 0
		s.Now, s.Ended, s.Backlog = afterNoon(20*time.Minute), afterNoon(14*time.Minute), 120
	})
}

// keysRefused are users that have withdrawn their consent, and one static token.
func keysRefused() situation {
	s := situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop/*", Thread: "shop.refused-1", Refused: true,
		State: breaker.Open, Cause: breaker.CauseCredentials, Since: afterNoon(-6 * time.Minute), Openings: 1, Wasted: 4,
		Backlog: -1, Expiring: -1, KeysOpen: 4, KeysPermanent: 3,
		Reason: "the token server refuses the refresh token of key \"alice\" of destination shop (answered 400 invalid_grant): let the user sign in again and put the new refresh token into OAUTH_REFRESH_TOKENS_FILE",
	}
	for i, k := range []string{"alice", "bob", "customer-4711", "dora@example.com"} {
		s.Keys = append(s.Keys, keySituation{
			Key: k, Since: afterNoon(time.Duration(i-6) * time.Minute), Until: afterNoon(time.Duration(i) * time.Minute),
			Cause: breaker.CauseCredentials, Permanent: i < 3, Held: 10 - 3*i,
		})
	}
	return s
}

func keysAccepted() situation {
	return changed(keysRefused(), func(s *situation) {
		s.State, s.KeysOpen, s.KeysPermanent, s.Keys, s.Wasted = breaker.Closed, 0, 0, nil, 0
		s.Now, s.Ended = afterNoon(20*time.Minute), afterNoon(19*time.Minute)
	})
}

func shopTokenRefused() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.Reason, s.Wasted, s.Rescheduled, s.Expiring = breaker.CauseCredentials, "answered 401 Unauthorized", 1, 1, 0
		s.Answers = []refusal{{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-7", Status: 401, Body: `{"error":"invalid_token","error_description":"The access token expired"}`}}
	})
}

func shopDown() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.Wasted, s.Rescheduled, s.Expiring = breaker.CauseOutage, 10, 10, 0
		s.Answers = []refusal{
			{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-17", Status: 503, Body: "upstream connect error or disconnect/reset before headers"},
			{At: afterNoon(-400 * time.Millisecond), Destination: "shop", Job: "post-16", Status: 503, Body: "upstream connect error or disconnect/reset before headers"},
		}
	})
}

var (
	exampleBurst  = burst{"shop", 57, 5 * time.Minute, afterNoon(0), `dial tcp 203.0.113.9:443: connect: connection refused`, "post-57"}
	exampleAlone  = refusedAlone{"shop", afterNoon(0), jobs.RefusedAlone{Jobs: 3, Refusals: 11, Failed: 1, Since: afterNoon(-20 * time.Minute), Job: "post-14", Text: "refused 4 times while 812 other calls were accepted"}}
	examplePoison = poisoned{"shop", "alice", "post-13", 3, "the worker died with the job in hand", afterNoon(0)}
	exampleLate   = overdue{
		Destination: "shop", Since: afterNoon(-65 * time.Minute), Bound: time.Hour, At: afterNoon(0), Backlog: 1204,
		WorkersSeen: afterNoon(-12 * time.Minute),
	}
	exampleLost  = redisOutage{"worker-2:4711", afterNoon(0), time.Time{}, "dial tcp 10.0.0.5:6379: connect: connection refused"}
	exampleDrops = eviction{Since: afterNoon(-time.Minute), At: afterNoon(0), Policy: "allkeys-lru", Dropped: 12, Total: 1066}
	exampleGone  = undelivered{7, afterNoon(-26 * time.Hour), "channel_not_found: the channel does not exist, or the app is not in it", "Slack"}
)

// examples are one message of each kind, in each state.
func examples() []example {
	c := composer{publicURL: "https://tidegate.example.com"}
	const tooLong = 15 * time.Minute
	late := changed(shopProbeFailed(), func(s *situation) { s.Now = afterNoon(15 * time.Minute) })
	parent := iconLimited + " shop" + headline(&late).Rest.Plain(late.Now)
	budget := changed(shopLimited(), func(s *situation) {
		s.Cause, s.Answers, s.Wasted, s.Rescheduled, s.Expiring = breaker.CauseBudget, nil, 0, 0, 0
	})
	short := changed(shopTripped(), func(s *situation) { s.Until = afterNoon(24 * time.Hour) })
	reset := changed(shopRecovered(), func(s *situation) { s.EndedBy = breaker.CauseReset })
	paused := exampleLate
	paused.Paused = true
	held := exampleLate
	held.WorkersSeen, held.State, held.Until = held.At, breaker.Open, afterNoon(20*time.Minute)
	slow := exampleLate
	slow.WorkersSeen = slow.At
	retried := slow
	retried.Job, retried.Waits = "post-7", "retry 3 of 10 in 5m"
	may, kept := exampleDrops, exampleDrops
	may.Dropped, may.Total = 0, 0
	kept.At = afterNoon(12 * time.Minute)
	kept.Ended, kept.Policy = kept.At, ""
	back := exampleLost
	back.Back = afterNoon(3*time.Minute + 2*time.Second)
	return []example{
		{"opened", "Message: shop is rate limited", "", shopLimited().Now, c.opened(shopLimited()), false},
		{"opened-one-route", "", "", shopLimited().Now, c.opened(changed(shopLimited(), func(s *situation) {
			s.Route = words.LimitedRoute("/v1/images", "request.path", 5, 40)
		})), false},
		{"opened-with-hint", "Message: shop is rate limited, the API said until when", "", shopHinted().Now, c.opened(shopHinted()), false},
		{"opened-nothing-left", "", "", budget.Now, c.opened(budget), false},
		{"probing", "Message: one call tests whether shop accepts calls again", "", shopLimited().Now, c.opened(shopOnTrial()), false},
		{"probe-failed", "Message: shop is still rate limited, two probes have failed", "", shopLimited().Now, c.opened(shopProbeFailed()), false},
		{"tripped", "Message: an operator has opened the breaker of shop", "", shopTripped().Now, c.opened(shopTripped()), false},
		{"tripped-for-a-day", "", "", short.Now, c.opened(short), false},
		{"flapping", "Message: the breaker of shop opens again and again", "", shopLimited().Now, c.opened(shopFlaps()), false},
		{"closed", "Message: shop has recovered", "", shopLimited().Now, c.opened(shopRecovered()), false},
		{"closed-by-hand", "", "", reset.Now, c.opened(reset), false},
		{"closed-forced", "", "", reset.Now, c.opened(changed(reset, func(s *situation) { s.EndedBy = breaker.CauseForced })), false},
		{"closed-lost", "", "", reset.Now, c.opened(changed(reset, func(s *situation) { s.EndedBy = breaker.CauseLost })), false},
		{"keys", "Message: twelve keys of shop are rate limited", "", keysLimited().Now, c.opened(keysLimited()), false},
		{"keys-over", "", "", keysOver().Now, c.opened(keysOver()), false},
		{"page", "Page: shop has been rate limited for 15 minutes", parent, late.Now, c.page(late, tooLong), false},
		{"page-too-late", "", parent, shopRecovered().Now, c.page(shopRecovered(), tooLong), false},
		{"page-tripped", "", parent, shopTripped().Now, c.page(changed(shopTripped(), func(s *situation) { s.Now = afterNoon(tooLong) }), tooLong), false},
		{"token-refused", "Message: the API refuses the token of shop", "", shopLimited().Now, c.opened(shopTokenRefused()), false},
		{"outage", "Message: shop is down", "", shopLimited().Now, c.opened(shopDown()), false},
		{"keys-refused", "Message: three users must sign in again", "", keysRefused().Now, c.opened(keysRefused()), false},
		{"page-keys-refused", "", parent, keysRefused().Now, c.page(keysRefused(), tooLong), false},
		{"page-keys-refused-late", "", parent, keysAccepted().Now, c.page(keysAccepted(), tooLong), false},
		{"recovery-keys-refused", "", parent, keysAccepted().Now, c.recovered(keysAccepted()), false},
		{"recovery", "Reply: shop has recovered", "", shopRecovered().Now, c.recovered(shopRecovered()), false},
		{"recovery-keys", "", parent, keysOver().Now, c.recovered(keysOver()), false},
		{"short-opened", "Through a webhook: shop is rate limited", "", shopLimited().Now, c.opened(shopLimited()), true},
		{"short-page", "", "", late.Now, c.page(late, tooLong), true},
		{"short-recovery", "", "", shopRecovered().Now, c.recovered(shopRecovered()), true},
		{"short-keys", "", "", keysLimited().Now, c.opened(keysLimited()), true},
		{"failed-burst", "Message: many jobs for shop have failed", "", noon, exampleBurst.compose(c), false},
		{"poison-job", "Message: a job killed three workers", "", noon, examplePoison.compose(c), false},
		{"refused-alone", "Message: the API refuses three jobs and accepts others", "", noon, exampleAlone.compose(c), false},
		{"oldest-pending", "Message: the oldest job for shop has waited for more than an hour", "", noon, exampleLate.compose(c), false},
		{"oldest-pending-paused", "", "", noon, paused.compose(c), false},
		{"oldest-pending-open", "", "", noon, held.compose(c), false},
		{"oldest-pending-slow", "", "", noon, slow.compose(c), false},
		{"oldest-pending-retried", "", "", noon, retried.compose(c), false},
		{"unreachable", "", "", noon, (&unreached{
			"shop", afterNoon(-2 * time.Minute), afterNoon(0), "dial tcp 203.0.113.9:443: connect: connection refused", 2,
		}).compose(c), false},
		{"redis-lost", "Message: a worker cannot reach Redis", "", noon, exampleLost.compose(c), false},
		{"redis-back", "Message: Redis is back", "", back.Back, back.compose(c), false},
		{"redis-drops-keys", "Message: Redis drops keys when its memory is full", "", noon, exampleDrops.compose(c), false},
		{"redis-may-drop-keys", "", "", noon, may.compose(c), false},
		{"redis-keeps-keys", "Reply: Redis keeps its keys again", "", kept.At, kept.compose(c), false},
		{"undelivered", "Message: alerts could not be delivered", "", noon, exampleGone.compose(c), false},
	}
}
