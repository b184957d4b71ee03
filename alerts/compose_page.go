package alerts

import (
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/text"
)

// page asks on-call to act: the incident has lasted for longer than tooLong.
func (c composer) page(s situation, tooLong time.Duration) *notice.Notice {
	n := c.about(&s, notice.Page, pageTitle(&s))
	n.Attention, n.Details = true, c.details(&s)
	first := lookCommands(&s)[:1]
	if s.over() {
		late := latePage(&s)
		n.Summary = join(notice.Name(s.subject()), n.Title.Rest, "; this page is late, nothing has to be done")
		n.Body = []notice.Block{paragraph(late), facts(closedFacts(&s)...), commands("", lookCommands(&s))}
		n.Short = &notice.Short{Line: late, Commands: plainCommands(first)}
		return n
	}
	n.Summary = pageSummary(&s, n.Title)
	n.Body = []notice.Block{tried(&s, tooLong), facts(pageFacts(&s)...)}
	if len(s.Answers) > 0 && !s.byHand() {
		n.Body = append(n.Body, bulleted(notice.Text{notice.Bold("Last answer")}, answerList(s.Answers[:1])))
	}
	n.Body = append(n.Body, bulleted(notice.Text{notice.Bold("What to do")}, advice(&s)),
		commands("", slices.Concat(lookCommands(&s), actCommands(&s))))
	n.Short = &notice.Short{Line: shortWhy(&s), Commands: plainCommands(append(first, actCommands(&s)[0]))}
	return n
}

// pageTitle has its duration.
func pageTitle(s *situation) notice.Title {
	lasted := s.lasted()
	icon, rest := iconPage, " has been rate limited for "+lasted
	if s.over() {
		icon = iconGood
	}
	switch {
	case s.Refused && s.over():
		rest = ": keys had no valid token for " + lasted + ", all have one now"
	case s.Refused:
		rest = ": " + refusedKeysText(s)
	case s.over() && s.byHand():
		rest = ": was open by hand for " + lasted + ", and is closed now"
	case s.over() && s.NoToken:
		rest = ": token server was unreachable for " + lasted + ", and is not now"
	case s.over() && s.Cause == breaker.CauseCredentials:
		rest = ": token was refused for " + lasted + ", and is not now"
	case s.over() && s.Cause == breaker.CauseOutage:
		rest = " was down, or refused every call, for " + lasted + ", and is not now"
	case s.over():
		rest = " was rate limited for " + lasted + ", and is not now"
	case s.byHand():
		rest = ": open by hand for " + lasted
	case s.NoToken:
		rest = ": token server unreachable for " + lasted
	case s.Cause == breaker.CauseCredentials:
		rest = ": token refused for " + lasted
	case s.Cause == breaker.CauseOutage:
		rest = " has been down, or refused every call, for " + lasted
	case s.Openings > 1:
		rest = " has been hitting its limit for " + lasted
	}
	return notice.Title{Icon: icon, Name: s.subject(), Rest: plain(rest)}
}

// pageSummary is a page in one line.
func pageSummary(s *situation, t notice.Title) notice.Text {
	line := join(notice.Name(s.subject()), t.Rest)
	if s.ofKeys() {
		return join(line, keyNames(s, " (", ")"))
	}
	line = join(line, reasonPart(s), waiting(s))
	switch {
	case s.open() && !s.Until.IsZero():
		return join(line, "; next try at ", notice.Time(s.Until))
	case s.open() && s.byHand():
		return join(line, "; it stays open until it is reset")
	}
	return line
}

// latePage is the text of a page that comes after the end.
func latePage(s *situation) notice.Text {
	byHand := ""
	if s.EndedBy == breaker.CauseReset || s.EndedBy == breaker.CauseForced {
		byHand = ", by hand"
	}
	return join("This page could not be delivered in time. The incident ended at ", notice.Time(s.Ended), byHand+": nothing has to be done now.")
}

// tried lists what Tidegate has done so far.
func tried(s *situation, tooLong time.Duration) notice.Block {
	limit := ""
	if tooLong > 0 {
		limit = " Pages come after " + span(tooLong) + "."
	}
	switch {
	case s.ofKeys() && s.waitsForToken():
		return paragraph("No token can be obtained. The jobs wait, and lose no retries; the token server is asked again by itself." + limit)
	case s.ofKeys():
		return paragraph("Tidegate cannot renew these tokens by itself. The jobs of these keys wait, and lose no retries; the jobs of other keys continue.")
	case s.byHand():
		return paragraph("It was opened by hand, so nothing has been tried: no call is made before its time has come, or an operator resets it." + limit)
	}
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
	return paragraph(notice.Bold("Tried so far:"), " "+strings.Join(done, ", ")+"."+limit)
}

func pageFacts(s *situation) []notice.Fact {
	next := notice.Fact{Name: "Next try", Value: instant(s.Until)}
	switch {
	case s.ofKeys():
		next = openKeysFact(s)
	case !s.open():
		next.Value = plain("now, by one call")
	case s.Until.IsZero():
		next.Value = plain("not before it is reset")
	}
	out := []notice.Fact{when("Since", s.Since), next}
	if s.Backlog >= 0 {
		out = append(out, number("Jobs waiting", s.Backlog))
	}
	if s.Expiring > 0 && !s.Until.IsZero() {
		out = append(out, number("Expire before then", s.Expiring))
	}
	return out
}

// advice lists what to do, the harmless first.
func advice(s *situation) []notice.Text {
	var out []string
	switch {
	case s.waitsForToken():
		out = []string{
			"If the jobs may wait, nothing: they run once the token server answers.",
			"Look at its status page, at OAUTH_TOKEN_URL, and at the way there from the workers.",
		}
	case s.Refused:
		out = []string{
			"Let each user sign in again, and put the new token into the destination's file: workers read it by themselves, and the jobs run.",
			"If a user has left, cancel the jobs of the key.",
			"If it is most users at once, look at the account of the app: the API's owner may have locked it, or ended the consents.",
		}
	case s.byHand():
		out = []string{
			"Ask the operator whether the reason still holds.",
			"If not, reset it: calls resume slowly (slow start).",
		}
	case s.Cause == breaker.CauseCredentials:
		out = []string{
			"Renew the token; the breaker closes when it is accepted.",
			"If the token is right, ask the API's owner why it is refused: the account may be locked.",
		}
	case s.Cause == breaker.CauseOutage:
		out = []string{
			"If the jobs may wait, nothing: they run by themselves once a probe succeeds.",
			"Look at the last answers and at the API's status page. 403 to every call can be a ban: ask its owner.",
			"If the API is up again, reset the breaker. A call that fails in the slow start opens it again.",
		}
	default:
		out = []string{
			"If the jobs may wait, nothing: they run by themselves once a probe succeeds.",
			"See whether something else uses the same budget: another program, another token of the account, a test.",
			"If the API's owner says that the limit is gone, reset the breaker. A refused call opens it again.",
			"If the jobs must not run by themselves later, pause the queue.",
		}
		if s.Expiring > 0 {
			out = slices.Insert(out, 1, "Some jobs expire before then: warn their owners.")
		}
	}
	bullets := make([]notice.Text, len(out))
	for i, line := range out {
		bullets[i] = plain(line)
	}
	return bullets
}

// details are an incident for programs. Unknown values are left out.
func (c composer) details(s *situation) map[string]any {
	d := map[string]any{
		"breaker":          notice.PlainName(s.Name),
		"destination":      notice.PlainName(s.Destination),
		"state":            s.State.String(),
		"lasted":           s.lasted(),
		"openings":         s.Openings,
		"failed_probes":    s.Probes,
		"wasted_calls":     s.Wasted,
		"rescheduled_jobs": s.Rescheduled,
	}
	set := func(name, value string) {
		if value != "" {
			d[name] = value
		}
	}
	set("since", rfc3339(s.Since))
	set("until", rfc3339(s.Until))
	set("ended", rfc3339(s.Ended))
	if s.open() && s.Until.IsZero() && s.byHand() {
		d["until"] = "it is reset"
	}
	if s.Cause != "" {
		d["cause"] = s.causeText()
	}
	set("reason", text.Line(s.Reason, notice.MaxReason))
	set("by", text.Line(s.By, notice.MaxBy))
	set("incident", text.Line(s.Incident, notice.MaxName))
	if s.Backlog >= 0 {
		d["backlog"] = s.Backlog
	}
	if s.Expiring >= 0 && !s.Until.IsZero() {
		d["expire_before_then"] = s.Expiring
	}
	var answers []map[string]any
	for _, a := range s.Answers[:min(len(s.Answers), maxAnswersShown)] {
		answer := map[string]any{"at": rfc3339(a.At), "body": text.Line(a.Body, notice.MaxBody)}
		if a.Status != 0 {
			answer["status"] = a.Status
		}
		if a.RetryAfter > 0 {
			answer["retry_after"] = span(a.RetryAfter)
		}
		answers = append(answers, answer)
	}
	if answers != nil {
		d["last_answers"] = answers
	}
	if s.ofKeys() {
		if s.Refused {
			d["keys_refused"], d["keys_permanent"] = s.KeysOpen, s.KeysPermanent
		} else {
			d["keys_limited"] = s.KeysOpen
		}
		var keys []string
		for _, k := range s.Keys[:min(len(s.Keys), maxKeys)] {
			keys = append(keys, notice.PlainName(k.Key))
		}
		d["keys"] = keys
		delete(d, "state")
	}
	var lines []string
	for _, c := range append(lookCommands(s), actCommands(s)...) {
		lines = append(lines, c.Line)
	}
	d["commands"] = lines
	set("link", c.breakerPage(s.Name))
	return d
}
