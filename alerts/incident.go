package alerts

import (
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
)

// situation is the data of a message about an incident. Unknown values are zero. Times are
// on Redis's clock.
type situation struct {
	// Now is when this was read.
	Now time.Time
	// Destination is the destination's name; Name that of the breaker ("shop",
	// "shop/alice"), or "shop/*" where all keys of a destination are summed up.
	Destination, Name string
	// Thread and Incident are ids: of the thread, and of the last incident in it.
	Thread, Incident string
	// State is what the breaker is in.
	State breaker.State
	// Cause is a Cause constant of package breaker, Reason the text of an operator, By the
	// operator, or the worker if the API refused.
	Cause, Reason, By string
	// Permanent is true for credentials that only a person can renew.
	Permanent bool
	// Learned words the limit that was learned from refusals, "" for none.
	Learned string
	// NoToken is true if the credentials were not refused: the token server is unreachable.
	NoToken bool
	// Answers are the last refusals of the API, the newest first, at most 3.
	Answers []refusal
	// SuggestedRate is the rate that an API accepts which spaces calls; see breaker.Status.
	SuggestedRate string
	// Route advises on an API that seems to limit one kind of calls by itself; "" for none.
	Route string
	// Since is when the first incident of the thread began, Until when the API is asked
	// again (zero: not before a person resets the breaker), Ended when it closed.
	Since, Until, Ended time.Time
	// EndedBy is why it closed: a Cause constant of package breaker (CauseSuccess,
	// CauseReset, CauseForced, CauseLost); "" counts as success.
	EndedBy string
	// Openings counts the incidents of the thread; above 1 the breaker flaps.
	Openings int
	// Probes counts failed probes, Wasted calls that the API refused, Rescheduled jobs, of
	// the whole thread.
	Probes, Wasted, Rescheduled int
	// Backlog is how many jobs wait, Expiring how many of them expire before Until.
	// Negative: not known.
	Backlog, Expiring int
	// Refused is true for a thread of keys whose credentials are refused.
	Refused bool
	// Keys are open keys of a thread of keys, those open for longest first.
	Keys []keySituation
	// KeysOpen counts the keys that are open now, KeysPermanent those of them whose
	// credentials only a person can renew, KeysNoToken those for which there is no token,
	// KeysSeen the incidents of keys.
	KeysOpen, KeysPermanent, KeysNoToken, KeysSeen int
}

// keySituation is one key in a thread of keys.
type keySituation struct {
	Key          string
	Since, Until time.Time // Until zero: until it is reset
	Cause        string
	Reason       string // why the API refused the credentials
	Permanent    bool   // only a person can renew them
	NoToken      bool   // there are none
	Held         int    // jobs that wait for it; negative: not known
}

// waitsForToken reports whether nothing but the token server holds the jobs that need a token.
func (s *situation) waitsForToken() bool {
	return s.NoToken || s.KeysNoToken > 0 && s.KeysPermanent == 0
}

// ofKeys reports whether the situation is of the keys of a destination.
func (s *situation) ofKeys() bool { return s.Name == s.Destination+allKeys }

// allKeys ends the name of a subject that stands for the keys of a destination that are rate
// limited, refusedKeys that of the keys whose credentials are refused.
const (
	allKeys     = "/*"
	refusedKeys = "/*refused"
)

// keysOf returns the destination of a subject that stands for keys.
func keysOf(subject string) (destination string, refused, ok bool) {
	if destination, refused = strings.CutSuffix(subject, refusedKeys); refused {
		return destination, true, true
	}
	destination, ok = strings.CutSuffix(subject, allKeys)
	return destination, false, ok
}

// isRefused reports whether a key's incident is one of refused credentials: those that only a
// person can renew stay so, whatever the API answers to a later probe.
func isRefused(cause string, permanent bool) bool {
	return permanent || cause == breaker.CauseCredentials
}

// refusal is one refusal of an API.
type refusal struct {
	At          time.Time     `json:"at"`
	Destination string        `json:"destination"`
	Key         string        `json:"key,omitempty"`
	Job         string        `json:"job"`
	Status      int           `json:"status,omitempty"` // 0 without an HTTP answer
	Body        string        `json:"body,omitempty"`   // the beginning, cleaned
	RetryAfter  time.Duration `json:"retry_after,omitempty"`
}

// causeText is the text of a cause; one that this version does not know is shown as
// it is.
func causeText(cause string) string {
	if text := explain.Cause(cause); text != cause {
		return text
	}
	return notice.PlainName(cause)
}

// causeText is the text of the incident's cause.
func (s *situation) causeText() string {
	if s.NoToken {
		return "there is no access token"
	}
	return causeText(s.Cause)
}

// refusals words how often the API refused: "3 × 429"; "" if it did not.
func refusals(s *situation) string {
	n := max(s.Wasted, len(s.Answers))
	if n <= 0 || s.Cause == breaker.CauseCredentials || s.Cause == breaker.CauseOutage {
		return ""
	}
	status := 0
	for i, a := range s.Answers {
		if i > 0 && a.Status != status || a.Status < 100 || a.Status > 999 {
			status = 0
			break
		}
		status = a.Status
	}
	if status == 0 {
		return count(n, "rate-limited answer", "rate-limited answers")
	}
	return thousands(n) + " × " + strconv.Itoa(status)
}

// byHand reports whether an operator opened the breaker.
func (s *situation) byHand() bool { return s.Cause == breaker.CauseManual }

// over reports whether it has ended.
func (s *situation) over() bool {
	if s.ofKeys() {
		return s.KeysOpen <= 0
	}
	return s.State == breaker.Closed
}

// open reports whether no call is made. Once its time has come, the next call is the probe,
// although the breaker may still be OPEN.
func (s *situation) open() bool {
	return s.State == breaker.Open && (s.Until.IsZero() || s.Until.After(s.Now))
}

// lasted is how long the thread has lasted.
func (s *situation) lasted() string {
	end := s.Ended
	if !s.over() || end.IsZero() {
		end = s.Now
	}
	if s.Since.IsZero() {
		return span(0)
	}
	return span(end.Sub(s.Since))
}

// waiting words how many jobs wait and how many of them expire before the end:
// "; 1,204 jobs wait; 17 expire before then". Unknown counts are left out.
func waiting(s *situation) string {
	if s.Backlog < 0 {
		return ""
	}
	out := "; " + jobsWait(s.Backlog)
	switch {
	case !s.open() || s.Until.IsZero():
	case s.Expiring == 1:
		out += "; 1 expires before then"
	case s.Expiring > 1:
		out += "; " + thousands(s.Expiring) + " expire before then"
	}
	return out
}

// backlog words how many jobs wait, if that is known.
func backlog(s *situation, before string) string {
	if s.Backlog < 0 {
		return ""
	}
	return before + jobsWait(s.Backlog)
}

// costsKnown reports whether the costs are known. Those of recovered keys may not be.
func (s *situation) costsKnown() bool {
	return !s.ofKeys() || s.Wasted > 0 || s.Probes > 0 || s.Rescheduled > 0
}

// costs words the costs in one line.
func costs(s *situation) string {
	return count(s.Wasted, "wasted call", "wasted calls") + ", " + count(s.Probes, "failed probe", "failed probes") + ", " +
		count(s.Rescheduled, "job rescheduled", "jobs rescheduled")
}

// subject is its name in messages: for all keys of a destination that of the destination.
func (s *situation) subject() string {
	if s.ofKeys() {
		return s.Destination
	}
	return s.Name
}
