package alerts

import (
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/breaker"
)

// pageTitle says for how long it has lasted.
func pageTitle(s *situation) title {
	switch {
	case s.ofKeys() && !s.over():
		return title{emojiPage, ": keys have been rate limited for " + s.lasted()}
	case s.ofKeys():
		return title{emojiGood, ": keys were rate limited for " + s.lasted() + ", none is now"}
	case s.over() && s.byHand():
		return title{emojiGood, ": was open by hand for " + s.lasted() + ", and is closed now"}
	case s.over():
		return title{emojiGood, " was rate limited for " + s.lasted() + ", and is not now"}
	case s.byHand():
		return title{emojiPage, ": open by hand for " + s.lasted()}
	case s.Openings > 1:
		return title{emojiPage, " has been hitting its limit for " + s.lasted()}
	}
	return title{emojiPage, " has been rate limited for " + s.lasted()}
}

// page is the reply that pages on-call: it has lasted for longer than tooLong.
func (w writer) page(s situation, tooLong time.Duration) message {
	t, name := pageTitle(&s), subjectName(&s)
	var b sheet
	b.mentioned(w.mentionText())
	b.header(t.inTitle(name))
	if s.over() {
		b.section(latePage(&s))
		b.fields(closedFields(&s)...)
		b.commands("", lookCommandsOf(&s))
	} else {
		b.section(tried(&s, tooLong))
		b.fields(pageFields(&s)...)
		if len(s.Answers) > 0 && !s.byHand() {
			b.rich(richLine(richBold("Last answer")), refusalList(s.Answers[:1]))
		}
		b.rich(richLine(richBold("What to do")), whatToDo(&s))
		b.commands("", slices.Concat(lookCommandsOf(&s), actCommandsOf(&s)))
	}
	b.link(w.breakerPage(s.Name))
	return compose(&b, w.mentionFirst(), pageText(&s))
}

// mentionFirst is the mention with a space behind it, "" for none.
func (w writer) mentionFirst() string {
	if m := w.mentionText(); m != "" {
		return m + " "
	}
	return ""
}

// pageText is what a page says in one line.
func pageText(s *situation) string {
	text := pageTitle(s).inText(subjectName(s))
	if s.over() {
		return text + "; this page is late, nothing has to be done"
	}
	if s.ofKeys() {
		return text + ", " + thousands(s.KeysOpen) + " of them now" + keyNames(s) + backlog(s, "; ")
	}
	text += reasonPart(s) + waiting(s)
	switch {
	case s.open() && !s.Until.IsZero():
		text += "; next try at " + clock(s.Until, s.Now)
	case s.open() && s.byHand():
		text += "; it stays open until it is reset"
	}
	return text
}

// latePage says that a page comes too late to be one.
func latePage(s *situation) string {
	text := "This page could not be delivered while it lasted. It ended at " + date(s.Ended)
	if s.EndedBy == breaker.CauseReset || s.EndedBy == breaker.CauseForced {
		text += ", by hand"
	}
	return text + ": nothing has to be done now."
}

// tried says what Tidegate has done so far.
func tried(s *situation, tooLong time.Duration) string {
	limit := ""
	if tooLong > 0 {
		limit = " Pages come after " + span(tooLong) + "."
	}
	switch {
	case s.ofKeys():
		return "Each key has a budget of its own, and waits for it by itself." + limit
	case s.byHand():
		return "It was opened by hand, so nothing has been tried: no call is made before its time has come, or somebody resets it." + limit
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
	return "*Tried so far:* " + strings.Join(done, ", ") + "." + limit
}

func pageFields(s *situation) []field {
	list := []field{{"Since", date(s.Since)}}
	switch {
	case s.ofKeys():
		list = append(list, field{"Keys limited now", thousands(s.KeysOpen)})
	case !s.open():
		list = append(list, field{"Next try", "now, by one call"})
	case s.Until.IsZero():
		list = append(list, field{"Next try", "not before it is reset"})
	default:
		list = append(list, field{"Next try", date(s.Until)})
	}
	if s.Backlog >= 0 {
		list = append(list, field{"Jobs waiting", thousands(s.Backlog)})
	}
	if s.Expiring > 0 && !s.Until.IsZero() {
		list = append(list, field{"Expire before then", thousands(s.Expiring)})
	}
	return list
}

// whatToDo is advice, the harmless first.
func whatToDo(s *situation) slack.RichTextElement {
	var lines []string
	switch {
	case s.ofKeys():
		lines = []string{
			"If the jobs may wait, nothing: those of each key leave when its limit ends.",
			"If one key has far more jobs than the others, ask whose they are, and cancel what is not needed.",
			"If all keys are limited at once, the limit may be that of all callers: trip the destination's breaker.",
		}
	case s.byHand():
		lines = []string{
			"Ask who opened it whether the reason still holds.",
			"If not, reset it: the jobs leave slowly at first.",
		}
	default:
		lines = []string{
			"If the jobs may wait, nothing: they leave by themselves once a probe succeeds.",
			"See whether something else uses the same budget: another program, another token of the account, a test.",
			"If the API's owner says that the limit is gone, reset the breaker. A refused call opens it again.",
			"If the jobs must not leave by themselves later, pause the queue.",
		}
		if s.Expiring > 0 {
			lines = slices.Insert(lines, 1, "Some jobs expire meanwhile: tell those who need them.")
		}
	}
	list := make([]slack.RichTextElement, len(lines))
	for i, text := range lines {
		list[i] = richLine(richText(text))
	}
	return richBullets(list...)
}

// recovery is the reply that says how it ended.
func (w writer) recovery(s situation) message {
	s.State, s.KeysOpen = breaker.Closed, 0
	var b sheet
	b.header(headline(&s).inTitle(subjectName(&s)))
	b.fields(append([]field{{"Lasted", s.lasted()}}, costFields(&s)...)...)
	if s.ofKeys() {
		b.section(keysPaced)
	} else {
		b.section(whatHappens(&s))
	}
	text := headline(&s).inText(subjectName(&s))
	if s.costsKnown() {
		return compose(&b, text, ": ", costs(&s), backlog(&s, "; "))
	}
	return compose(&b, text, backlog(&s, ": "))
}

// The three of a webhook, which can neither update a message nor reply to one.

// shortOpened says that it has opened.
func (w writer) shortOpened(s situation) message {
	t := headline(&s)
	return w.short(&s, summary(&s), t.emoji+" *"+codeName(subjectName(&s))+shortRest(&s)+"*\n"+upperFirst(shortWhy(&s)), lookCommandsOf(&s)[:1])
}

// shortPage says that it has lasted for too long; for how long says more than what too
// long is.
func (w writer) shortPage(s situation, _ time.Duration) message {
	t := pageTitle(&s)
	second := upperFirst(shortWhy(&s))
	act := actCommandsOf(&s)[:1]
	if s.over() {
		second, act = latePage(&s), nil
	}
	m := w.short(&s, w.mentionFirst()+pageText(&s), t.emoji+" *"+codeName(subjectName(&s))+t.rest+"*\n"+second, slices.Concat(lookCommandsOf(&s)[:1], act))
	if text := w.mentionText(); text != "" {
		var b sheet
		b.mentioned(text)
		m.Blocks = slices.Concat(b.list, m.Blocks)
	}
	return m
}

// shortRecovery says that it is over.
func (w writer) shortRecovery(s situation) message {
	s.State, s.KeysOpen = breaker.Closed, 0
	m := w.recovery(s)
	t := headline(&s)
	var second []string
	if s.costsKnown() {
		second = append(second, costs(&s))
	}
	if s.Backlog > 0 {
		second = append(second, "the backlog ("+count(s.Backlog, "job", "jobs")+") leaves slowly at first")
	}
	return w.short(&s, m.Text, t.emoji+" *"+codeName(subjectName(&s))+t.rest+"*\n"+upperFirst(strings.Join(second, "; ")), lookCommandsOf(&s)[:1])
}

// short is a message of two lines and a command.
func (w writer) short(s *situation, text, mrkdwn string, list []command) message {
	var b sheet
	b.section(strings.TrimSpace(mrkdwn))
	for i := range list {
		list[i].what = ""
	}
	b.commands("", list)
	if address := w.breakerPage(s.Name); address != "" {
		b.context("<" + address + "|" + linkLabel + ">")
	}
	return compose(&b, text)
}

// shortRest is the headline with a date in the reader's time zone.
func shortRest(s *situation) string {
	rest := headline(s).rest
	if s.open() && !s.Until.IsZero() && !s.ofKeys() {
		rest = strings.Replace(rest, clock(s.Until, s.Now), date(s.Until), 1)
	}
	return rest
}

// shortWhy is the second line, in mrkdwn.
func shortWhy(s *situation) string {
	if s.ofKeys() {
		if names := keyNames(s); names != "" {
			return "keys " + strings.Trim(names, " ()") + backlog(s, "; ")
		}
		return backlog(s, "")
	}
	if s.over() || !s.open() {
		return backlog(s, "")
	}
	return reasonText(s) + waiting(s)
}

func upperFirst(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// subjectName is how the subject is called: that of all keys by their destination.
func subjectName(s *situation) string {
	if s.ofKeys() {
		return s.Destination
	}
	return s.Name
}

func lookCommandsOf(s *situation) []command {
	if s.ofKeys() {
		return keysLook(s)
	}
	return lookCommands(s)
}

func actCommandsOf(s *situation) []command {
	if s.ofKeys() {
		return keysAct(s)
	}
	return actCommands(s)
}
