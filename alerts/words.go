package alerts

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
)

// causeWords puts a cause in words; one that this version does not know is shown as
// it is.
func causeWords(cause string) string {
	if text := explain.Cause(cause); text != cause {
		return text
	}
	return plainName(cause)
}

// refusals says how often the API refused: "3 × 429"; "" if it did not.
func refusals(s *situation) string {
	n := max(s.Wasted, len(s.Answers))
	if n <= 0 {
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

// byHand says that an operator opened the breaker.
func (s *situation) byHand() bool { return s.Cause == breaker.CauseManual }

// over says that it has ended.
func (s *situation) over() bool {
	if s.ofKeys() {
		return s.KeysOpen <= 0
	}
	return s.State == breaker.Closed
}

// open says that no call is made. Once its time has come, the next call is the probe,
// whether or not somebody has made it HALF_OPEN yet.
func (s *situation) open() bool {
	return s.State == breaker.Open && (s.Until.IsZero() || s.Until.After(s.Now))
}

// lasted is how long the case has lasted.
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

// title is a headline: what stands before and after the name. The name alone may be
// foreign.
type title struct{ emoji, rest string }

// Emoji that the previews can draw.
const (
	emojiLimited = "🔴"
	emojiTesting = "🟡"
	emojiGood    = "🟢"
	emojiByHand  = "⏸️"
	emojiPage    = "🚨"
	emojiFailed  = "❌"
	emojiPoison  = "⛔"
	emojiLate    = "⏳"
	emojiTrouble = "⚠️"
)

// headline says what the state is, in one line.
func headline(s *situation) title {
	if s.ofKeys() {
		return keysHeadline(s)
	}
	switch {
	case s.over():
		return title{emojiGood, ended(s) + " after " + s.lasted()}
	case !s.open():
		return title{emojiTesting, ": testing recovery with one call"}
	case s.byHand():
		return title{emojiByHand, ": opened by hand" + untilWords(s)}
	case s.Openings > 1:
		return title{emojiLimited, " is rate limited again" + untilWords(s) + ", the " + ordinal(s.Openings) + " time"}
	case s.Probes > 0:
		return title{emojiLimited, " is still rate limited" + untilWords(s)}
	}
	return title{emojiLimited, " is rate limited" + untilWords(s)}
}

// ended says how it ended.
func ended(s *situation) string {
	switch s.EndedBy {
	case breaker.CauseReset:
		return " was closed by hand"
	case breaker.CauseForced:
		return " is kept closed by hand,"
	case breaker.CauseLost:
		return ": closed, " + causeWords(s.EndedBy) + ","
	}
	return " has recovered"
}

func untilWords(s *situation) string {
	switch {
	case !s.Until.IsZero():
		return " until " + clock(s.Until, s.Now)
	case s.byHand():
		return " until it is reset"
	}
	return ""
}

// inTitle is the headline of a header.
func (t title) inTitle(name string) string { return t.emoji + " " + titleName(name) + t.rest }

// inText is the headline of a notification.
func (t title) inText(name string) string { return inertName(name) + t.rest }

// waiting says how many jobs wait and how many of them will not live to see the end:
// "; 1,204 jobs wait; 17 expire before then". What is not known is left out.
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

// backlog says how many jobs wait, if that is known.
func backlog(s *situation, before string) string {
	if s.Backlog < 0 {
		return ""
	}
	return before + jobsWait(s.Backlog)
}

// costsKnown says whether it is known what it has cost. What has been read of keys
// that have recovered may be nothing.
func (s *situation) costsKnown() bool {
	return !s.ofKeys() || s.Wasted > 0 || s.Probes > 0 || s.Rescheduled > 0
}

// costs say what it has cost, in one line.
func costs(s *situation) string {
	return count(s.Wasted, "wasted call", "wasted calls") + ", " + count(s.Probes, "failed probe", "failed probes") + ", " +
		count(s.Rescheduled, "job rescheduled", "jobs rescheduled")
}

// mentions of Slack in the forms that the configuration knows.
var (
	mentionGroup  = regexp.MustCompile(`^@(here|channel|everyone)$`)
	mentionUser   = regexp.MustCompile(`^[UW][A-Z0-9]{1,40}$`)
	mentionTeam   = regexp.MustCompile(`^S[A-Z0-9]{1,40}$`)
	mentionName   = regexp.MustCompile(`^@[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}._-]{0,79}$`)
	mentionMarkup = regexp.MustCompile(`^<(@[UW][A-Z0-9]{1,40}|!subteam\^S[A-Z0-9]{1,40}|!here|!channel|!everyone)>$`)
)

// mentionText is the configured mention as Slack wants it; "" for what is none.
func (w writer) mentionText() string {
	m := strings.TrimSpace(w.mention)
	switch {
	case mentionGroup.MatchString(m):
		return "<!" + m[1:] + ">"
	case mentionUser.MatchString(m):
		return "<@" + m + ">"
	case mentionTeam.MatchString(m):
		return "<!subteam^" + m + ">"
	case mentionName.MatchString(m), mentionMarkup.MatchString(m):
		return m
	}
	return ""
}
