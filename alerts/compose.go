package alerts

import (
	"cmp"
	"net/url"
	"slices"
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
	publicURL string        // base of links, "" for none
	tooLong   time.Duration // after which incidents page; 0 and less: never
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
	}
	return incidentKind(s.Cause, s.NoToken)
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
	v, kind := newValues(), s.kind()
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
		fact := "until_fact"
		if kind == down { // it is not known when such an API is back
			fact = "next_test"
		}
		v.set(fact, timeSpan(s.Until))
		v.set("next_try", timeSpan(s.Until))
		v.setIf(s.Expiring >= 0, "expiring", thousands(s.Expiring))
	} else if s.open() {
		v.setIf(s.kind() == byHand, "until", " until it is reset")
		v.set("until_fact", "it is reset")
		v.set("next_try", "not before it is reset")
	} else {
		v.set("next_try", "now, by one call")
	}
	v.setIf(!s.Asked.IsZero(), "asked", span(s.Asked.Sub(s.Now)), ", until ", timeSpan(s.Asked), "; tested before, unless the API says so again")
	v.setIf(s.Expiring > 0 && !s.Until.IsZero(), "expiring_some", thousands(s.Expiring))
	v.setIf(s.Expiring > 0, "if_expiring")
	v.setIf(s.Backlog >= 0, "backlog", thousands(s.Backlog))
	v.setIf(s.Backlog >= 0, "backlog_now", count(s.Backlog, "job", "jobs"))
	v.setIf(s.costsKnown(), "wasted", thousands(s.Wasted))
	v.setIf(s.costsKnown(), "probes", thousands(s.Probes))
	v.setIf(s.costsKnown(), "rescheduled", thousands(s.Rescheduled))
	v.set("still")
	v.setIf(s.Probes > 0, "still", " still")
	v.set("ended_how", map[string]string{
		breaker.CauseReset: " was closed by hand", breaker.CauseForced: " is kept closed by hand,", breaker.CauseLost: ": closed, " + causeText(breaker.CauseLost) + ",",
	}[s.EndedBy])
	if len(v.one["ended_how"]) == 0 {
		v.set("ended_how", " has recovered")
	}
	for name, before := range map[string]string{"backlog_only": ": ", "backlog_too": "; "} {
		v.set(name)
		v.setIf(s.Backlog >= 0, name, before, jobsWait(s.Backlog))
	}
	v.set("wasted_calls", count(s.Wasted, "wasted call", "wasted calls"))
	v.set("lost_probes", count(s.Probes, "failed probe", "failed probes"))
	v.set("jobs_rescheduled", count(s.Rescheduled, "job rescheduled", "jobs rescheduled"))
	v.set("tried", s.tried())
	v.set("reason", s.reasonPart())
	v.set("waiting", v.one["backlog_too"])
	v.setIf(s.Backlog >= 0 && timed && s.Expiring > 0 && kind != down, "waiting", v.one["backlog_too"], "; "+count(s.Expiring, "expires", "expire")+" before then")
	if !s.Gone.IsZero() && (kind == limited || kind == byHand && timed) { // it is not known when the others end
		gone := []any{"; the backlog will be gone by ", timeSpan(s.Gone)}
		if s.Late > 0 {
			gone = append(gone, "; "+count(s.Late, "job expires before it can run", "jobs expire before they can run"))
		}
		v.set("waiting", slices.Concat([]any{v.one["backlog_too"]}, gone)...)
	}
	v.set("next")
	v.setIf(timed, "next", "; next try at ", timeSpan(s.Until))
	v.setIf(s.open() && !timed && s.kind() == byHand, "next", "; it stays open until it is reset")
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

// keysValues sets the values for a thread about keys.
func (s *situation) keysValues(v values) {
	v.set("key_names", s.keyNames())
	v.set("keys_of", codeSpan(s.Destination))
	v.set("key", notice.Span{Text: "KEY"})
	delete(v.one, "next_try")
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

// form is how a notice of an incident is worded.
type form struct{ icon, title, summary, body string }

// form returns that of a kind of notices in the present state.
func (s *situation) form(kind notice.Kind) form {
	r := rules[s.kind()]
	over := cmp.Or(r.over, "{ended_how} after {lasted}")
	switch {
	case kind == notice.Page && s.ofKeys():
		return form{iconPage, r.page, "{key_names}", pageBody}
	case kind == notice.Page:
		return form{iconPage, r.page, "{reason}{waiting}{next}", pageBody}
	case kind == notice.Recovered && s.costsKnown():
		return form{iconGood, over, ": {wasted_calls}, {lost_probes}, {jobs_rescheduled}{backlog_too}", recoveryBody}
	case kind == notice.Recovered:
		return form{iconGood, over, "{backlog_only}", recoveryBody}
	case s.over():
		return form{iconGood, over, "{backlog_only}", overBody}
	case s.ofKeys():
		return form{r.icon, r.title, "{key_names}{backlog_too}", openBody}
	case !s.open():
		return form{iconTesting, ": testing recovery with one call", "{backlog_too}", openBody}
	}
	return form{r.icon, r.title, "{reason}{waiting}", openBody}
}

// compose makes a notice of an incident. [notice.Opened] is its message, whatever its state is by now.
func (c composer) compose(kind notice.Kind, s *situation) *notice.Notice {
	if kind == notice.Recovered {
		s.State, s.KeysOpen, s.KeysPermanent, s.KeysNoToken = breaker.Closed, 0, 0, 0
	}
	f, r, v := s.form(kind), rules[s.kind()], s.values()
	v.set("limit")
	v.setIf(c.tooLong > 0, "limit", " Pages come after "+span(c.tooLong)+".")
	name := s.Name
	if s.ofKeys() {
		name = s.Destination
	}
	n := &notice.Notice{
		Kind: kind, Critical: true, Attention: kind == notice.Page, Dedup: s.ID, At: s.Since, Now: s.Now,
		Subject: plainName(s.Name), Class: "circuit breaker open", Icon: f.icon, Title: join(nameSpan(name), v.say(f.title)), Link: c.breakerPage(s.Name),
	}
	n.Summary = join(n.Title, v.say(f.summary))
	hint, advice := "", r.advice
	if kind == notice.Opened && !(s.Refused && !s.over()) {
		advice = ""
	}
	if !s.over() && !s.ofKeys() {
		hint = s.hint(v)
	}
	n.Body = v.body(f.body, "{happens}", s.happens(), "{hint}", hint, "{tried_macro}", r.tried, "{advice}", strings.TrimSuffix(advice, "\n"), "{act}", r.act)
	if kind == notice.Opened && !s.ofKeys() {
		n.Footer = join("Tidegate · breaker ", codeSpan(s.Name))
		if s.ID != "" {
			n.Footer = join(n.Footer, " · incident ", codeSpan(s.ID))
		}
		if s.By != "" && s.kind() != byHand && !s.over() {
			n.Footer = join(n.Footer, " · noticed by ", quote(s.By, maxBy))
		}
	}
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
		return "one call of the whole fleet, the probe, tests {name}. If it succeeds, " + paced + ". If it fails, the breaker opens again, and this message says when the next one follows."
	case s.Until.IsZero():
		return "nothing by itself. No worker calls {name} until an operator resets the breaker; its jobs wait, and expire if their time comes."
	}
	if r := rules[s.kind()]; r.happens != "" {
		return r.happens
	}
	return rules[limited].happens
}

// hint advises on an API that spaces calls.
func (s *situation) hint(v values) string {
	if s.SuggestedRate == "" || !s.open() {
		return ""
	}
	v.set("rate", words.Rate(s.SuggestedRate))
	return "*This API spaces calls:* set `DESTINATION_…_" + words.RateOf(s.Name) + "`, about {rate}."
}

// tried lists what Tidegate has done so far.
func (s *situation) tried() string {
	var done []string
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
			if !k.AskedUntil.IsZero() {
				line = join(line, ", asked for until ", timeSpan(k.AskedUntil))
			}
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
	u, err := url.Parse(c.publicURL)
	markup := strings.ContainsAny(c.publicURL, "<>|\"` ") || strings.ContainsFunc(c.publicURL, func(r rune) bool { return !unicode.IsPrint(r) })
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || markup {
		return ""
	}
	address := u.JoinPath("breakers", strings.TrimSuffix(plainName(name), allKeys)).String()
	if len(address) > maxURL {
		return ""
	}
	return address
}
