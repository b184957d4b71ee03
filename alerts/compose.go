package alerts

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/words"
	"github.com/tidegate/tidegate/internal/view/explain"
)

// The examples of messages in testdata are made by the real functions:
//
//go:generate go test -run ^TestMessages$ -count=1 . -args -update

// composer makes notices.
type composer struct {
	publicURL string        // base of links, "" for none
	tooLong   time.Duration // after which incidents page; 0 and less: never
}

// compose makes a notice of an incident. [notice.Opened] is its message, whatever its state is by now.
func (c composer) compose(kind notice.Kind, s *situation) *notice.Notice {
	if kind == notice.Recovered {
		s.State, s.KeysOpen, s.KeysPermanent, s.KeysNoToken = breaker.Closed, 0, 0, 0
	}
	form := "open"
	switch {
	case kind == notice.Page:
		form = "page"
	case kind == notice.Recovered:
		form = "recovered"
	case s.Over():
		form = "over"
	case !s.OfKeys() && !s.Stopped():
		form = "testing"
	}
	s.TooLong = c.tooLong
	n := write(s.Kind(), form, s)
	n.Kind, n.Critical, n.Attention, n.Dedup, n.At, n.Now = kind, true, kind == notice.Page, s.ID, s.Since, s.Now
	n.Subject, n.Class, n.Link = plainName(s.Name), "circuit breaker open", c.breakerPage(s.Name)
	if kind == notice.Opened && !s.OfKeys() {
		footer := "Tidegate · breaker " + mark(notice.StyleCode, plainName(s.Name))
		if s.ID != "" {
			footer += " · incident " + mark(notice.StyleCode, plainName(s.ID))
		}
		if s.By != "" && s.Kind() != byHand && !s.Over() {
			footer += " · noticed by " + mark(notice.StyleQuote, text.Line(s.By, 80))
		}
		n.Footer = spans(footer)
	}
	return n
}

// The methods below are what templates ask of a situation, beside its fields.

// Kind is the kind of the incident, which chooses the file of its message.
func (s *situation) Kind() string {
	switch {
	case s.Refused:
		return refusedOfKeys
	case s.OfKeys():
		return limitedKeys
	}
	return incidentKind(s.Cause, s.NoToken)
}

// OfKeys reports whether the situation is of the keys of a destination.
func (s *situation) OfKeys() bool { return s.Name == s.Destination+allKeys }

// Over reports whether it has ended.
func (s *situation) Over() bool {
	return s.OfKeys() && s.KeysOpen <= 0 || !s.OfKeys() && s.State == breaker.Closed
}

// Stopped reports whether no call is made. Once its time has come, the next call is the probe,
// although the breaker may still be OPEN.
func (s *situation) Stopped() bool {
	return s.State == breaker.Open && (s.Until.IsZero() || s.Until.After(s.Now))
}

// Timed reports whether no call is made until a time.
func (s *situation) Timed() bool { return s.Stopped() && !s.Until.IsZero() }

// EndKnown reports whether it is known when the backlog is gone: an API that is down, or refuses a token, may take longer.
func (s *situation) EndKnown() bool {
	return !s.Gone.IsZero() && (s.Kind() == limited || s.Kind() == byHand && s.Timed())
}

// Lasted words how long the incident has lasted.
func (s *situation) Lasted() string {
	if s.Over() && !s.Ended.IsZero() {
		return span(s.Ended.Sub(s.Since))
	}
	return span(s.Now.Sub(s.Since))
}

// CostsKnown reports whether the costs are known: the costs of recovered keys may not be.
func (s *situation) CostsKnown() bool { return !s.OfKeys() || s.counts != counts{} }

// CountsKeys reports whether incidents of keys are counted.
func (s *situation) CountsKeys() bool { return s.OfKeys() && !s.Refused && s.Keys > 0 }

// MoreKeys counts the open keys that are not named.
func (s *situation) MoreKeys() int { return s.KeysOpen - len(s.Open) }

// Waiting reports whether nothing but the token server holds keys.
func (s *situation) Waiting() bool { return s.KeysNoToken > 0 && s.KeysPermanent == 0 }

// ShowsAnswers reports whether a page shows the last response.
func (s *situation) ShowsAnswers() bool { return len(s.Answers) > 0 && s.Kind() != byHand }

// ShowsLearned reports whether a learned limit belongs to the reason.
func (s *situation) ShowsLearned() bool {
	return s.Learned != "" && !isRefused(s.Cause, s.Permanent) && s.Cause != breaker.CauseOutage
}

// Rate is a rate that the API accepts, RateSetting the end of the name of its setting.
func (s *situation) Rate() string { return words.Rate(s.SuggestedRate) }

// RateSetting is RATE or KEY_RATE.
func (s *situation) RateSetting() string { return words.RateOf(s.Name) }

// RefusedKeys words how many keys have refused credentials: "3 users must sign in again".
func (s *situation) RefusedKeys() string {
	var parts []string
	if s.KeysPermanent > 0 {
		parts = append(parts, count(s.KeysPermanent, "user", "users")+" must sign in again")
	}
	if s.KeysNoToken > 0 {
		parts = append(parts, count(s.KeysNoToken, "key waits", "keys wait")+" for the token server")
	}
	switch other := s.KeysOpen - s.KeysPermanent - s.KeysNoToken; {
	case other == 1:
		parts = append(parts, "the token of 1 key is refused")
	case other > 1 || parts == nil:
		parts = append(parts, "the tokens of "+thousands(other)+" keys are refused")
	}
	return strings.Join(parts, ", and ")
}

// Refusals words how often the API refused: "3 × 429"; "" if it did not.
func (s *situation) Refusals() string {
	n := max(s.Wasted, len(s.Answers))
	if n <= 0 || s.Cause == breaker.CauseCredentials || s.Cause == breaker.CauseOutage {
		return ""
	}
	for i, a := range s.Answers {
		if a.Status != s.Answers[0].Status || a.Status < 100 || a.Status > 999 {
			break
		}
		if i == len(s.Answers)-1 {
			return thousands(n) + " × " + strconv.Itoa(a.Status)
		}
	}
	return count(n, "rate-limited answer", "rate-limited answers")
}

// CauseText is the text of the incident's cause.
func (s *situation) CauseText() string {
	if s.NoToken {
		return "there is no access token"
	}
	return causeText(s.Cause)
}

// causeText is the text of a cause; one that this version does not know is shown as it is.
func causeText(cause string) string {
	if text := explain.Cause(cause); text != cause {
		return text
	}
	return plainName(cause)
}

// maxURL is the length of an address that Slack accepts.
const maxURL = 3000

// breakerPage is the address of a breaker's page in the dashboard, "" for none.
func (c composer) breakerPage(name string) string {
	return c.page("breakers", strings.TrimSuffix(plainName(name), allKeys))
}

// page is the address of a page in the dashboard, "" for none.
func (c composer) page(path ...string) string {
	u, err := url.Parse(c.publicURL)
	markup := strings.ContainsAny(c.publicURL, "<>|\"` ") || strings.ContainsFunc(c.publicURL, func(r rune) bool { return !unicode.IsPrint(r) })
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || markup {
		return ""
	}
	address := u.JoinPath(path...).String()
	if len(address) > maxURL {
		return ""
	}
	return address
}
