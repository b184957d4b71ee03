package alerts

import (
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
)

// example is a message as it may be in real life: the golden test holds its JSON.
type example struct {
	name   string // of its file
	notice *notice.Notice
	short  bool // as a webhook shows it
}

// noon is when the stories of the examples begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func afterNoon(d time.Duration) time.Time { return noon.Add(d) }

// shopLimited is a breaker that the API has opened.
func shopLimited() situation {
	return situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop", State: breaker.Open, Until: afterNoon(5 * time.Minute), Backlog: 1204, Expiring: 17, Gone: afterNoon(100 * time.Minute), Late: 17,
		thread: thread{ID: "0199a1b2", Cause: breaker.CauseThreshold, By: "worker-2:4711", Since: afterNoon(0), counts: counts{Wasted: 3, Rescheduled: 3}},
		Answers: []refusal{
			{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-7", Status: 429, Body: `{"error":"rate_limit_exceeded","message":"You have made too many requests."}`},
			{At: afterNoon(-400 * time.Millisecond), Destination: "shop", Job: "post-6", Status: 429, Body: `{"error":"rate_limit_exceeded","message":"You have made too many requests."}`},
			{At: afterNoon(-900 * time.Millisecond), Destination: "shop", Job: "post-5", Status: 429},
		},
	}
}

func changed(s situation, change func(*situation)) situation {
	s.Answers, s.Open = slices.Clone(s.Answers), slices.Clone(s.Open)
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

func shopRecovered() situation {
	return changed(shopProbeFailed(), func(s *situation) {
		s.Now, s.State, s.Until = afterNoon(15*time.Minute+4*time.Second), breaker.Closed, time.Time{}
		s.Ended, s.EndedBy, s.Expiring, s.Backlog = afterNoon(15*time.Minute+3*time.Second), breaker.CauseSuccess, -1, 1377
		s.Answers = nil
	})
}

func keysLimited() situation {
	s := situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop/*", State: breaker.Open, Backlog: 3310, Expiring: -1, KeysOpen: 12,
		thread: thread{ID: "keys-1", Cause: breaker.CauseHint, Since: afterNoon(-6 * time.Minute), Keys: 14, counts: counts{Wasted: 14, Probes: 2}},
		Answers: []refusal{{
			At: afterNoon(0), Destination: "shop", Key: "alice", Job: "post-7", Status: 429, RetryAfter: 10 * time.Minute, Body: `{"error":"user_limit"}`,
		}},
	}
	for i, k := range []string{"alice", "bob", "customer-4711", "dora@example.com", "emil"} {
		s.Open = append(s.Open, keySituation{breaker.Status{
			OpenedAt: afterNoon(time.Duration(i-6) * time.Minute), OpenUntilRedis: afterNoon(time.Duration(10+i) * time.Minute), IncidentCause: breaker.CauseHint,
		}, k, 40 - 13*i})
	}
	s.Open[2].IncidentCause, s.Open[2].Held = breaker.CauseThreshold, 1
	s.Open[3].Held, s.Open[4].Held = 1800, -1
	s.Open[4].OpenUntilRedis, s.Open[4].IncidentCause = time.Time{}, breaker.CauseManual
	return s
}

func keysOver() situation {
	return changed(keysLimited(), func(s *situation) {
		s.State, s.KeysOpen, s.Open, s.Answers, s.counts = breaker.Closed, 0, nil, nil, counts{}
		s.Now, s.Ended, s.Backlog = afterNoon(20*time.Minute), afterNoon(14*time.Minute), 120
	})
}

// keysRefused are users that have withdrawn their consent, and one static token.
func keysRefused() situation {
	s := situation{
		Now: afterNoon(10 * time.Second), Destination: "shop", Name: "shop/*", Refused: true, State: breaker.Open,
		Backlog: -1, Expiring: -1, KeysOpen: 4, KeysPermanent: 3,
		thread: thread{ID: "shop.refused-1", Cause: breaker.CauseCredentials, Since: afterNoon(-6 * time.Minute), Keys: 4, counts: counts{Wasted: 4}},
	}
	s.Reason = "the token server refuses the refresh token of key \"alice\" of destination shop (answered 400 invalid_grant): let the user sign in again and put the new refresh token into OAUTH_REFRESH_TOKENS_FILE"
	for i, k := range []string{"alice", "bob", "customer-4711", "dora@example.com"} {
		s.Open = append(s.Open, keySituation{breaker.Status{
			OpenedAt: afterNoon(time.Duration(i-6) * time.Minute), OpenUntilRedis: afterNoon(time.Duration(i) * time.Minute),
			IncidentCause: breaker.CauseCredentials, Permanent: i < 3,
		}, k, 10 - 3*i})
	}
	return s
}

func keysAccepted() situation {
	return changed(keysRefused(), func(s *situation) {
		s.State, s.KeysOpen, s.KeysPermanent, s.Open, s.Wasted = breaker.Closed, 0, 0, nil, 0
		s.Now, s.Ended = afterNoon(20*time.Minute), afterNoon(19*time.Minute)
	})
}

func shopTokenRefused() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.Reason, s.Wasted, s.Rescheduled, s.Expiring, s.Learned = breaker.CauseCredentials, "answered 401 Unauthorized", 1, 1, 0, "about 60 calls per 5 min"
		s.Answers = []refusal{{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-7", Status: 401, Body: `{"error":"invalid_token","error_description":"The access token expired"}`}}
	})
}

func shopWithoutToken() situation {
	return changed(shopTokenRefused(), func(s *situation) {
		s.NoToken, s.Answers, s.Reason = true, nil, "the token server answers 503"
	})
}

func shopDown() situation {
	return changed(shopLimited(), func(s *situation) {
		s.Cause, s.Wasted, s.Rescheduled, s.Expiring, s.Learned = breaker.CauseOutage, 10, 10, 0, "about 60 calls per 5 min"
		s.Answers = []refusal{
			{At: afterNoon(-100 * time.Millisecond), Destination: "shop", Job: "post-17", Status: 503, Body: "upstream connect error or disconnect/reset before headers"},
			{At: afterNoon(-400 * time.Millisecond), Destination: "shop", Job: "post-16", Status: 503, Body: "upstream connect error or disconnect/reset before headers"},
		}
	})
}

// examples are one message of each kind, in each state.
func examples() []example {
	c := composer{publicURL: "https://tidegate.example.com"}
	const tooLong = 15 * time.Minute
	late := changed(shopProbeFailed(), func(s *situation) { s.Now = afterNoon(15 * time.Minute) })
	reset := changed(shopRecovered(), func(s *situation) { s.EndedBy = breaker.CauseReset })
	var out []example
	add := func(name string, s situation, kind notice.Kind) {
		out = append(out, example{name, c.compose(kind, &s), strings.HasPrefix(name, "short-")})
	}
	c.tooLong = tooLong
	add("opened", shopLimited(), notice.Opened)
	add("opened-with-hint", shopHinted(), notice.Opened)
	add("opened-nothing-left", changed(shopLimited(), func(s *situation) {
		s.Cause, s.Answers, s.Wasted, s.Rescheduled, s.Expiring = breaker.CauseBudget, nil, 0, 0, 0
	}), notice.Opened)
	learned := changed(shopLimited(), func(s *situation) { s.Learned = "about 60 calls per 5 min" })
	add("opened-learned", learned, notice.Opened)
	add("closed-learned", changed(learned, func(s *situation) {
		s.State, s.Cause, s.Ended, s.Answers = breaker.Closed, breaker.CauseProbe, s.Now, nil
	}), notice.Opened)
	add("probing", shopOnTrial(), notice.Opened)
	add("probe-failed", shopProbeFailed(), notice.Opened)
	add("tripped", shopTripped(), notice.Opened)
	add("tripped-for-a-day", changed(shopTripped(), func(s *situation) { s.Until = afterNoon(24 * time.Hour) }), notice.Opened)
	add("closed", shopRecovered(), notice.Opened)
	add("closed-by-hand", reset, notice.Opened)
	add("closed-forced", changed(reset, func(s *situation) { s.EndedBy = breaker.CauseForced }), notice.Opened)
	add("closed-lost", changed(reset, func(s *situation) { s.EndedBy = breaker.CauseLost }), notice.Opened)
	add("keys", keysLimited(), notice.Opened)
	add("keys-over", keysOver(), notice.Opened)
	add("page", late, notice.Page)
	add("page-tripped", changed(shopTripped(), func(s *situation) { s.Now = afterNoon(tooLong) }), notice.Page)
	add("token-refused", shopTokenRefused(), notice.Opened)
	add("no-token", shopWithoutToken(), notice.Opened)
	add("outage", shopDown(), notice.Opened)
	add("keys-refused", keysRefused(), notice.Opened)
	add("page-keys-refused", keysRefused(), notice.Page)
	add("recovery-keys-refused", keysAccepted(), notice.Recovered)
	add("recovery", shopRecovered(), notice.Recovered)
	add("recovery-keys", keysOver(), notice.Recovered)
	add("short-opened", shopLimited(), notice.Opened)
	add("short-page", late, notice.Page)
	add("short-recovery", shopRecovered(), notice.Recovered)
	add("short-keys", keysLimited(), notice.Opened)

	of := func(name string, s single, change func(*single)) {
		if change != nil {
			change(&s)
		}
		out = append(out, example{name, s.compose(c), false})
	}
	lost := single{Kind: redisLost, By: "worker-2:4711", Since: afterNoon(0), At: afterNoon(0), Problem: "dial tcp 10.0.0.5:6379: connect: connection refused"}
	of("unreached", single{Kind: unreached, Destination: "shop", Since: afterNoon(0), At: afterNoon(2 * time.Minute), Backlog: -1, Problem: "dial tcp: lookup api.example: no such host"}, nil)
	of("unserved", single{Kind: unservedJobs, Destination: "shop", Since: afterNoon(0), At: afterNoon(10 * time.Minute), Backlog: 1204}, nil)
	of("unserved-ever", single{Kind: unservedJobs, Destination: "shop", At: afterNoon(0), Backlog: 1}, nil)
	of("served-again", single{Kind: flows, Destination: "shop", At: afterNoon(20 * time.Minute), Problem: "served"}, nil)
	blocked := single{
		Kind: blockedKeys, Destination: "shop", Key: "alice", Job: "post-7", Since: afterNoon(0), At: afterNoon(5 * time.Second), Backlog: 41,
		Problem: `answered 422 Unprocessable Entity: {"error":"title is too long"}`,
	}
	of("blocked-key", blocked, nil)
	of("blocked-keys", blocked, func(s *single) { s.Others, s.Backlog = 498, 0 })
	of("redis-lost", lost, nil)
	of("redis-lost-password", lost, func(s *single) {
		s.Problem = "it refuses to write: WRONGPASS invalid username-password pair or user is disabled."
	})
	of("redis-lost-memory", lost, func(s *single) {
		s.Problem = "it refuses to write: OOM command not allowed when used memory > 'maxmemory'."
	})
	of("redis-back", lost, func(s *single) { s.Kind, s.At = redisBack, afterNoon(3*time.Minute+2*time.Second) })
	return out
}
