package alerts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/breaker"
)

// incident is the one message of a case, in whatever state that is now.
func (w writer) incident(s situation) message {
	if s.ofKeys() {
		return w.keysIncident(&s)
	}
	var b sheet
	b.header(headline(&s).inTitle(s.Name))
	if s.over() {
		b.fields(closedFields(&s)...)
	} else {
		b.fields(openFields(&s)...)
	}
	b.why(&s)
	b.section(whatHappens(&s))
	b.section(flapping(&s))
	if s.over() {
		b.commands("To look", lookCommands(&s))
	} else {
		b.commands("To look and to act", slices.Concat(lookCommands(&s), actCommands(&s)))
	}
	b.link(w.breakerPage(s.Name))
	b.footer(&s)
	return compose(&b, summary(&s))
}

// summary says all that matters in one line.
func summary(s *situation) string {
	text := headline(s).inText(subjectName(s))
	switch {
	case s.over():
		return text + backlog(s, ": ")
	case s.ofKeys():
		return text + keyNames(s) + backlog(s, "; ")
	case !s.open():
		return text + backlog(s, "; ")
	}
	return text + reasonPart(s) + waiting(s)
}

// reasonPart is the reason as the continuation of a headline.
func reasonPart(s *situation) string {
	if s.byHand() {
		return ", " + reasonText(s)
	}
	return ": " + reasonText(s)
}

// reasonText says why in one line of a notification.
func reasonText(s *situation) string {
	if s.byHand() {
		text := "by " + inert(s.By, mostBy)
		if s.By == "" {
			text = "by an operator"
		}
		if s.Reason != "" {
			text += " (" + inert(s.Reason, mostReason) + ")"
		}
		return text
	}
	if text := refusals(s); text != "" && s.Cause != breaker.CauseBudget {
		return text
	}
	return causeWords(s.Cause)
}

func openFields(s *situation) []field {
	until := field{"Until", date(s.Until)}
	switch {
	case s.State != breaker.Open || !s.open():
		until.value = "" // the probe is due, or on its way
	case s.Until.IsZero():
		until.value = "it is reset"
	}
	list := []field{{"Since", date(s.Since)}, until}
	if s.Backlog >= 0 {
		list = append(list, field{"Jobs waiting", thousands(s.Backlog)})
	}
	if s.Expiring >= 0 && until.value != "" && !s.Until.IsZero() {
		list = append(list, field{"Expire before then", thousands(s.Expiring)})
	}
	if s.Probes > 0 {
		list = append(list, field{"Failed probes", thousands(s.Probes)})
	}
	return list
}

func closedFields(s *situation) []field {
	list := []field{{"Since", date(s.Since)}, {"Until", date(s.Ended)}}
	list = append(list, costFields(s)...)
	if s.Openings > 1 {
		list = append(list, field{"Opened", count(s.Openings, "time", "times")})
	}
	return list
}

// costFields say what it has cost. Of keys that have recovered that may not be known.
func costFields(s *situation) []field {
	var list []field
	if s.costsKnown() {
		list = append(list, field{"Wasted calls", thousands(s.Wasted)}, field{"Failed probes", thousands(s.Probes)},
			field{"Jobs rescheduled", thousands(s.Rescheduled)})
	}
	if s.Backlog >= 0 {
		list = append(list, field{"Backlog now", count(s.Backlog, "job", "jobs")})
	}
	return list
}

// why says why it opened, with the last answers of the API.
func (b *sheet) why(s *situation) {
	if s.over() && !s.byHand() && (s.Cause == "" || s.Cause == breaker.CauseProbe) {
		return // that was why it stayed open
	}
	text := []slack.RichTextSectionElement{richBold("Why: "), richText(causeWords(s.Cause))}
	if s.byHand() {
		if s.By != "" {
			text = append(text, richText(" by "), richCode(s.By, mostBy))
		}
		if s.Reason != "" {
			text = append(text, richText(": "+literal(s.Reason, mostReason)))
		}
	} else if n := refusals(s); n != "" && !s.over() {
		text = append(text, richText(" ("+n+")"))
	}
	elements := []slack.RichTextElement{richLine(text...)}
	if len(s.Answers) > 0 && !s.byHand() {
		elements = append(elements, refusalList(s.Answers))
	}
	b.rich(elements...)
}

// mostAnswersShown is how many answers are shown.
const mostAnswersShown = 3

// refusalList shows answers of an API: when, what status, what it said, and about what
// job.
func refusalList(answers []Answer) slack.RichTextElement {
	var list []slack.RichTextElement
	for i, a := range answers[:min(len(answers), mostAnswersShown)] {
		text := []slack.RichTextSectionElement{richDate(a.At), richText("  ")}
		if a.Status != 0 {
			text = append(text, richBold(strconv.Itoa(a.Status)), richText("  "))
		}
		switch {
		case a.Body == "":
			text = append(text, richText("no text"))
		case i > 0 && a.Body == answers[i-1].Body:
			text = append(text, richText("the same"))
		default:
			text = append(text, richCode(a.Body, mostBody))
		}
		if a.RetryAfter > 0 {
			text = append(text, richText("  asks to wait for "+span(a.RetryAfter)))
		}
		list = append(list, richLine(text...))
	}
	return richBullets(list...)
}

// whatHappens says what happens by itself, in mrkdwn.
func whatHappens(s *situation) string {
	name := codeName(s.Name)
	const paced = "the jobs leave slowly at first: 1, 2, 4 … calls in flight (slow start)"
	switch {
	case s.over() && s.EndedBy == breaker.CauseForced:
		return "*Now:* calls go out whatever the API answers, until somebody resets the breaker."
	case s.over() && s.EndedBy == breaker.CauseLost:
		return "*Now:* calls go out again. If the API still limits, its next answers open the breaker again."
	case s.over():
		return "*Now:* " + paced + "."
	case !s.open():
		return "*What happens now:* one call of the whole fleet, the probe, tests " + name + ". If it succeeds, " + paced +
			". If it is refused, the breaker opens again, and this message says until when."
	case s.Until.IsZero():
		return "*What happens now:* nothing by itself. No worker calls " + name + " until somebody resets the breaker; its jobs wait, and expire if their time comes."
	}
	return "*What happens now:* no worker calls " + name + " before then; its jobs wait, and lose no retries. Then one call, the probe, tests it. If it succeeds, " +
		paced + ". If it is refused, this message says until when."
}

// flapping says what to do about a breaker that opens again and again.
func flapping(s *situation) string {
	if s.Openings <= 1 || s.over() || s.byHand() {
		return ""
	}
	return "*It flaps:* each time after it had recovered, the calls met the limit again. " +
		"A configured rate spreads them: `DESTINATION_…_RATE`, such as `60/1h`."
}

// lookCommands are those that change nothing.
func lookCommands(s *situation) []command {
	name := shellName(s.Name)
	list := []command{{"", "tidegate breaker get " + name}, {"", "tidegate breaker incidents " + name}}
	if s.over() {
		return append(list, command{"", "tidegate stats --destination " + shellName(s.Destination)})
	}
	return append(list, command{"", "tidegate list --destination " + shellName(s.Destination) + keyFlag(s.Name) + " --status pending"})
}

// actCommands are those that end it, or keep it from ending.
func actCommands(s *situation) []command {
	return []command{
		{"call again now, limit or not:", "tidegate breaker reset " + shellName(s.Name)},
		{"hold its jobs, also after the limit:", "tidegate queue pause " + shellName(s.Destination)},
	}
}

// keyFlag is the flag that selects the jobs of a breaker's key; "" for a destination's.
func keyFlag(name string) string {
	if _, key, keyed := strings.Cut(plainName(name), "/"); keyed {
		return " --key " + shellName(key)
	}
	return ""
}

// footer names the incident.
func (b *sheet) footer(s *situation) {
	text := "Tidegate · breaker " + codeName(s.Name)
	if s.Incident != "" {
		text += " · incident " + codeName(s.Incident)
	}
	if s.By != "" && !s.byHand() && !s.over() {
		text += " · noticed by " + code(s.By, mostBy)
	}
	b.context(text)
}
