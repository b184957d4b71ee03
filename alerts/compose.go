package alerts

import (
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/explain/words"
)

// The examples of messages in testdata are made by the real functions:
//
//go:generate go test -run ^TestMessages$ -count=1 . -args -update

// composer makes notices.
type composer struct {
	publicURL string // base of links, "" for none
}

// kind is the incident's: that of its rule.
func (s *situation) kind() string {
	switch {
	case s.Refused && s.KeysNoToken > 0 && s.KeysPermanent == 0:
		return waitingKeys
	case s.Refused:
		return refusedOfKeys
	case s.ofKeys():
		return limitedKeys
	case s.Cause == breaker.CauseManual:
		return byHand
	case s.NoToken:
		return noToken
	case s.Cause == breaker.CauseCredentials:
		return tokenRefused
	case s.Cause == breaker.CauseOutage:
		return down
	}
	return limited
}

// ofKeys reports whether the situation is of the keys of a destination.
func (s *situation) ofKeys() bool { return s.Name == s.Destination+allKeys }

// over reports whether it has ended.
func (s *situation) over() bool {
	return s.ofKeys() && s.KeysOpen <= 0 || !s.ofKeys() && s.State == breaker.Closed
}

// open reports whether no call is made. Once its time has come, the next call is the probe,
// although the breaker may still be OPEN.
func (s *situation) open() bool {
	return s.State == breaker.Open && (s.Until.IsZero() || s.Until.After(s.Now))
}

// lasted is how long the thread has lasted.
func (s *situation) lasted() string {
	if s.over() && !s.Ended.IsZero() {
		return span(s.Ended.Sub(s.Since))
	}
	return span(s.Now.Sub(s.Since))
}

// costsKnown reports whether the costs are known. Those of recovered keys may not be.
func (s *situation) costsKnown() bool { return !s.ofKeys() || s.counts != counts{} }

// values are the words of the situation's facts.
func (s *situation) values() values {
	v := newValues()
	timed := s.open() && !s.Until.IsZero()
	v.set("name", codeSpan(s.Name))
	v.set("destination", codeSpan(s.Destination))
	v.setTime("since", s.Since)
	v.setTime("ended", s.Ended)
	v.set("lasted", s.lasted())
	v.setTime("until_time", s.Until)
	v.set("until")
	if timed {
		v.set("until", " until ", timeSpan(s.Until))
		v.set("until_fact", timeSpan(s.Until))
		v.set("next_try", timeSpan(s.Until))
		v.setIf(s.Expiring >= 0, "expiring", thousands(s.Expiring))
	} else if s.open() {
		v.setIf(s.kind() == byHand, "until", " until it is reset")
		v.set("until_fact", "it is reset")
		v.set("next_try", "not before it is reset")
	} else {
		v.set("next_try", "now, by one call")
	}
	v.setIf(s.Expiring > 0 && !s.Until.IsZero(), "expiring_some", thousands(s.Expiring))
	v.setIf(s.Expiring > 0, "if_expiring")
	v.setIf(s.Backlog >= 0, "backlog", thousands(s.Backlog))
	v.setIf(s.Backlog >= 0, "backlog_now", count(s.Backlog, "job", "jobs"))
	v.setIf(s.costsKnown(), "wasted", thousands(s.Wasted))
	v.setIf(s.costsKnown(), "probes", thousands(s.Probes))
	v.setIf(s.costsKnown(), "rescheduled", thousands(s.Rescheduled))
	v.setIf(s.Openings > 1, "openings", count(s.Openings, "time", "times"))
	byHandEnd := s.EndedBy == breaker.CauseReset || s.EndedBy == breaker.CauseForced
	v.set("by_hand", map[bool]string{true: ", by hand"}[byHandEnd])
	// Which limit it is, and how often it was met.
	v.set("still")
	v.set("again")
	v.set("nth")
	v.set("limited_for", " has been rate limited")
	switch {
	case s.Openings > 1:
		v.set("again", " again")
		v.set("nth", ", the "+ordinal(s.Openings)+" time")
		v.set("limited_for", " has been hitting its limit")
	case s.Probes > 0:
		v.set("still", " still")
	}
	v.set("ended_how", map[string]string{
		breaker.CauseReset: " was closed by hand", breaker.CauseForced: " is kept closed by hand,", breaker.CauseLost: ": closed, " + causeText(breaker.CauseLost) + ",",
	}[s.EndedBy])
	if len(v.one["ended_how"]) == 0 {
		v.set("ended_how", " has recovered")
	}
	if s.ofKeys() {
		s.keysValues(v)
	} else {
		v.setIf(s.Probes > 0, "failed_probes", thousands(s.Probes))
		v.set("breaker", codeSpan(s.Name))
		s.whyValues(v)
		v.lists["answers"] = answerList(s.Answers)
	}
	if len(s.Answers) > 0 && s.kind() != byHand {
		v.set("if_answers")
		v.lists["last_answer"] = answerList(s.Answers[:1])
	}
	return v
}

// keysValues are those of a thread of keys.
func (s *situation) keysValues(v values) {
	v.set("keys_of", codeSpan(s.Destination))
	v.set("key", notice.Span{Text: "KEY"})
	delete(v.one, "next_try")
	delete(v.one, "openings")
	if len(s.Open) > 0 {
		v.set("key", codeSpan(s.Open[0].Key))
	}
	v.set("keys_limited", count(s.KeysOpen, "key is", "keys are"))
	v.set("keys_refused", refusedKeysText(s))
	v.setIf(s.Refused && !s.over(), "keys_waiting", thousands(s.KeysOpen))
	v.setIf(!s.Refused && !s.over(), "keys_limited_now", thousands(s.KeysOpen))
	v.setIf(!s.Refused && s.Keys > 0, "keys_seen", thousands(s.Keys))
	delete(v.one, "until_fact")
	delete(v.one, "expiring")
	if s.over() {
		return
	}
	v.lists["keys"] = keyList(s)
	v.lists["answers"] = answerList(s.Answers)
	v.setIf(len(s.Answers) > 0, "if_answers_of_keys")
	v.setIf(s.Refused && s.Reason != "", "why_keys", foreign(s.Reason, maxReason))
	v.setIf(s.Refused, "if_refused")
}

// whyValues explain why a breaker opened.
func (s *situation) whyValues(v values) {
	hand := s.kind() == byHand
	switch {
	case s.over() && !hand && (s.Cause == "" || s.Cause == breaker.CauseProbe): // its cause is why it stayed open
		v.setIf(s.Learned != "", "learned_only", "It keeps a learned limit: "+s.Learned)
	case hand:
		line := join(s.causeText())
		if s.By != "" {
			line = join(line, " by ", quote(s.By, maxBy))
		}
		if s.Reason != "" {
			line = join(line, foreign(": "+s.Reason, maxReason+len(": ")))
		}
		v.set("why", line)
	default:
		line := join(s.causeText())
		if n := s.refusals(); n != "" && !s.over() {
			line = join(line, " ("+n+")")
		}
		line = join(line, s.refusalReason())
		if s.Learned != "" && !isRefused(s.Cause, s.Permanent) && s.Cause != breaker.CauseOutage {
			line = join(line, "; learned limit: "+s.Learned)
		}
		v.set("why", line)
	}
}

// notice starts a notice of an incident.
func (c composer) notice(s *situation, kind notice.Kind, icon string, title notice.Text) *notice.Notice {
	name := s.Name
	if s.ofKeys() {
		name = s.Destination
	}
	return &notice.Notice{
		Kind: kind, Critical: true, Dedup: s.ID, At: s.Since, Now: s.Now,
		Subject: plainName(s.Name), Class: "circuit breaker open", Icon: icon, Title: join(nameSpan(name), title), Link: c.breakerPage(s.Name),
	}
}

// headline is the state in one line, after the name.
func (s *situation) headline(v values) (icon string, title notice.Text) {
	r := rules[s.kind()]
	switch {
	case s.over() && r.over != "":
		return iconGood, v.say(r.over)
	case s.over():
		return iconGood, v.say("{ended_how} after {lasted}")
	case !s.ofKeys() && !s.open():
		return iconTesting, v.say(": testing recovery with one call")
	}
	return r.icon, v.say(r.title)
}

// opened is the message of a thread, whatever state that is in now.
func (c composer) opened(s *situation) *notice.Notice {
	v, r := s.values(), rules[s.kind()]
	icon, title := s.headline(v)
	n := c.notice(s, notice.Opened, icon, title)
	body, advice := openBody, ""
	switch {
	case s.over():
		n.Summary, body = join(n.Title, s.backlog(": ")), overBody
	case s.ofKeys():
		n.Summary = join(n.Title, s.keyNames(), s.backlog("; "))
		if s.Refused {
			advice = r.advice
		}
	case !s.open():
		n.Summary = join(n.Title, s.backlog("; "))
	default:
		n.Summary = join(n.Title, s.reasonPart(), s.waiting())
	}
	hint := ""
	if !s.over() && !s.ofKeys() {
		hint = s.hint(v)
	}
	n.Body = v.body(body, "{happens}", s.happens(), "{hint}", hint, "{advice}", advice, "{act}", r.act)
	if s.ofKeys() {
		return n
	}
	n.Footer = join("Tidegate · breaker ", codeSpan(s.Name))
	if s.Incident != "" {
		n.Footer = join(n.Footer, " · incident ", codeSpan(s.Incident))
	}
	if s.By != "" && s.kind() != byHand && !s.over() {
		n.Footer = join(n.Footer, " · noticed by ", quote(s.By, maxBy))
	}
	return n
}

// reopened is the reply that it is open again after a premature recovery.
func (c composer) reopened(s *situation) *notice.Notice {
	n := c.opened(s)
	n.Kind, n.Body, n.Footer = notice.Reopened, nil, nil
	return n
}

// recovered is the reply at the end.
func (c composer) recovered(s *situation) *notice.Notice {
	s.State, s.KeysOpen, s.KeysPermanent, s.KeysNoToken = breaker.Closed, 0, 0, 0
	v := s.values()
	icon, title := s.headline(v)
	n := c.notice(s, notice.Recovered, icon, title)
	n.Body = v.body(recoveryBody, "{happens}", s.happens())
	n.Summary = join(n.Title, s.backlog(": "))
	if s.costsKnown() {
		n.Summary = join(n.Title, ": "+count(s.Wasted, "wasted call", "wasted calls")+", "+count(s.Probes, "failed probe", "failed probes")+
			", "+count(s.Rescheduled, "job rescheduled", "jobs rescheduled")+s.backlog("; "))
	}
	return n
}

// page asks on-call to act: the incident has lasted for longer than tooLong.
func (c composer) page(s *situation, tooLong time.Duration) *notice.Notice {
	v, r := s.values(), rules[s.kind()]
	if s.over() {
		n := c.notice(s, notice.Page, iconGood, v.say(r.late))
		n.Attention = true
		n.Summary = join(n.Title, "; this page is late, nothing has to be done")
		n.Body = v.body(lateBody)
		return n
	}
	v.set("limit")
	if tooLong > 0 {
		v.set("limit", " Pages come after "+span(tooLong)+".")
	}
	v.set("tried", s.tried())
	n := c.notice(s, notice.Page, iconPage, v.say(r.page))
	n.Attention = true
	n.Body = v.body(pageBody, "{tried_macro}", r.tried, "{advice}", strings.TrimSuffix(r.advice, "\n"), "{act}", r.act)
	switch {
	case s.ofKeys():
		n.Summary = join(n.Title, s.keyNames())
		return n
	case s.open() && !s.Until.IsZero():
		n.Summary = join("; next try at ", timeSpan(s.Until))
	case s.open() && s.kind() == byHand:
		n.Summary = join("; it stays open until it is reset")
	}
	n.Summary = join(n.Title, s.reasonPart(), s.waiting(), n.Summary)
	return n
}

// happens is what happens without action.
func (s *situation) happens() string {
	switch {
	case s.over() && s.ofKeys():
		return "calls resume slowly for each key: 1, 2, 4 … in flight (slow start)."
	case s.over() && s.EndedBy == breaker.CauseForced:
		return "calls go out whatever the API answers, until an operator resets the breaker."
	case s.over() && s.EndedBy == breaker.CauseLost:
		return "calls go out again. If the API still limits, its next answers open the breaker again."
	case s.over():
		return paced + "."
	case s.ofKeys():
	case !s.open():
		return "one call of the whole fleet, the probe, tests {name}. If it succeeds, " + paced + ". If it is refused, the breaker opens again, and this message says until when."
	case s.Until.IsZero():
		return "nothing by itself. No worker calls {name} until an operator resets the breaker; its jobs wait, and expire if their time comes."
	}
	if r := rules[s.kind()]; r.happens != "" {
		return r.happens
	}
	return rules[limited].happens
}

// hint advises on a breaker that opens again and again.
func (s *situation) hint(v values) string {
	hand := s.kind() == byHand
	switch {
	case s.Route != "" && s.open() && !hand:
		v.set("route", foreign(s.Route, maxReason))
		return "*One route:* {route}."
	case s.SuggestedRate != "" && s.open():
		v.set("rate", words.Rate(s.SuggestedRate))
		return "*This API spaces calls:* set `DESTINATION_…_" + words.RateOf(s.Name) + "`, about {rate}."
	case s.Openings <= 1 || hand || s.Cause == breaker.CauseCredentials || s.Cause == breaker.CauseOutage:
		return ""
	}
	return "*It flaps:* each time after it had recovered, the calls met the limit again. A configured rate spreads them: `DESTINATION_…_RATE`, such as `60/1h`."
}

// tried lists what Tidegate has done so far.
func (s *situation) tried() string {
	var done []string
	if s.Openings > 1 {
		done = append(done, "it opened "+count(s.Openings, "time", "times"))
	}
	if s.Probes > 0 {
		done = append(done, count(s.Probes, "probe was refused", "probes were refused"))
	} else {
		done = append(done, "no probe was refused yet")
	}
	done = append(done, count(s.Wasted, "call was wasted", "calls were wasted"), count(s.Rescheduled, "job was rescheduled", "jobs were rescheduled"))
	return strings.Join(done, ", ")
}

// refusedKeysText words how many keys have refused credentials: "3 users must sign in again".
func refusedKeysText(s *situation) string {
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

// reasonPart is why it opened, as the continuation of a headline.
func (s *situation) reasonPart() notice.Text {
	switch {
	case s.kind() == byHand:
		line := join(", by an operator")
		if s.By != "" {
			line = join(", by ", foreign(s.By, maxBy))
		}
		if s.Reason != "" {
			line = join(line, " (", foreign(s.Reason, maxReason), ")")
		}
		return line
	case s.refusals() != "" && s.Cause != breaker.CauseBudget:
		return join(": " + s.refusals())
	}
	return join(": ", s.causeText(), s.refusalReason())
}

// refusalReason is why the API refused the credentials, as the continuation of a line.
func (s *situation) refusalReason() notice.Text {
	if s.Cause != breaker.CauseCredentials || s.Reason == "" {
		return nil
	}
	return join(" (", foreign(s.Reason, maxReason), ")")
}

// refusals words how often the API refused: "3 × 429"; "" if it did not.
func (s *situation) refusals() string {
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

// causeText is the text of the incident's cause.
func (s *situation) causeText() string {
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

// waiting words how many jobs wait and how many of them expire before the end:
// "; 1,204 jobs wait; 17 expire before then". Unknown counts are left out.
func (s *situation) waiting() string {
	out := s.backlog("; ")
	if out != "" && s.open() && !s.Until.IsZero() && s.Expiring > 0 {
		out += "; " + count(s.Expiring, "expires", "expire") + " before then"
	}
	return out
}

// backlog words how many jobs wait, if that is known.
func (s *situation) backlog(before string) string {
	if s.Backlog < 0 {
		return ""
	}
	return before + jobsWait(s.Backlog)
}

// answerList lists answers of an API: time, status and text.
func answerList(answers []refusal) []notice.Text {
	var out []notice.Text
	for i, a := range answers[:min(len(answers), maxAnswers)] {
		line := join(timeSpan(a.At), "  ")
		if a.Status != 0 {
			line = join(line, notice.Span{Style: notice.StyleBold, Text: strconv.Itoa(a.Status)}, "  ")
		}
		switch {
		case a.Body == "":
			line = join(line, "no text")
		case i > 0 && a.Body == answers[i-1].Body:
			line = join(line, "the same")
		default:
			line = join(line, quote(a.Body, maxBody))
		}
		if a.RetryAfter > 0 {
			line = join(line, "  asks to wait for "+span(a.RetryAfter))
		}
		out = append(out, line)
	}
	return out
}

// keyNames names the first keys in one line: " (alice, bob, …)".
func (s *situation) keyNames() notice.Text {
	const most = 3
	var out notice.Text
	for _, k := range s.Open[:min(len(s.Open), most)] {
		out = join(out, map[bool]string{true: " (", false: ", "}[out == nil], nameSpan(k.Key))
	}
	switch {
	case out == nil:
		return nil
	case s.KeysOpen > min(len(s.Open), most):
		out = join(out, ", …")
	}
	return join(out, ")")
}

// keyList shows the keys: which, until when, how many jobs wait, why.
func keyList(s *situation) []notice.Text {
	var out []notice.Text
	for _, k := range s.Open[:min(len(s.Open), maxKeys)] {
		line, tail := join(codeSpan(k.Key)), ""
		if k.Held >= 0 {
			tail = "; " + jobsWait(k.Held)
		}
		switch {
		case s.Refused:
			line = join(line, " since ", timeSpan(k.OpenedAt))
		case k.OpenUntilRedis.IsZero():
			line = join(line, " until it is reset")
		default:
			line = join(line, " until ", timeSpan(k.OpenUntilRedis))
		}
		switch {
		case k.Permanent:
			tail += "; the user must sign in again"
		case k.NoCredentials:
			tail += "; there is no token"
		case s.Refused:
			tail += "; renew the token"
		case k.IncidentCause != "":
			tail += "; " + causeText(k.IncidentCause)
		}
		out = append(out, join(line, tail))
	}
	if more := s.KeysOpen - len(out); out != nil && more > 0 {
		out = append(out, join("and "+count(more, "other", "others")))
	}
	return out
}

// maxURL is the length of an address that Slack accepts.
const maxURL = 3000

// breakerPage is the address of a breaker's page in the dashboard, "" for none.
func (c composer) breakerPage(name string) string {
	base := strings.TrimRight(c.publicURL, "/")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	if strings.ContainsAny(base, "<>|\"` ") || strings.ContainsFunc(base, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "" // in a link it would be markup
	}
	destination, key, keyed := strings.Cut(plainName(name), "/")
	address := u.Scheme + base[len(u.Scheme):] + "/breakers/" + url.PathEscape(destination)
	if keyed && key != "*" {
		address += "/" + url.PathEscape(key)
	}
	if len(address) > maxURL {
		return ""
	}
	return address
}
