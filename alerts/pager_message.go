package alerts

import (
	"strings"
	"time"
	"unicode/utf8"
)

// mostSummary is PagerDuty's limit of a summary, in bytes.
const mostSummary = 1024

// pagerSummary is the headline of an incident in PagerDuty, in plain text. The span
// after which it pages is not repeated: PagerDuty shows that it has paged.
func (w writer) pagerSummary(s situation, _ time.Duration) string {
	return cutSummary(plain(pageText(&s)))
}

// plain takes out what is meant for Slack.
func plain(s string) string { return plainer.Replace(s) }

var plainer = strings.NewReplacer(joiner, "", "&lt;", "<", "&gt;", ">", "&amp;", "&")

// cutSummary shortens a text to what PagerDuty takes, whole characters only.
func cutSummary(s string) string {
	if len(s) <= mostSummary {
		return s
	}
	s = s[:mostSummary-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// pagerDetails are what PagerDuty shows below the headline. What is not known is left
// out.
func (w writer) pagerDetails(s situation) map[string]any {
	d := map[string]any{
		"breaker":          plainName(s.Name),
		"destination":      plainName(s.Destination),
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
		d["cause"] = causeWords(s.Cause)
	}
	set("reason", clean(s.Reason, mostReason))
	set("by", clean(s.By, mostBy))
	set("incident", clean(s.Incident, mostName))
	if s.Backlog >= 0 {
		d["backlog"] = s.Backlog
	}
	if s.Expiring >= 0 && !s.Until.IsZero() {
		d["expire_before_then"] = s.Expiring
	}
	var answers []map[string]any
	for _, a := range s.Answers[:min(len(s.Answers), mostAnswersShown)] {
		answer := map[string]any{"at": rfc3339(a.At), "body": clean(a.Body, mostBody)}
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
		d["keys_limited"] = s.KeysOpen
		var keys []string
		for _, k := range s.Keys[:min(len(s.Keys), mostKeys)] {
			keys = append(keys, plainName(k.Key))
		}
		d["keys"] = keys
		delete(d, "state")
	}
	var lines []string
	for _, c := range append(lookCommandsOf(&s), actCommandsOf(&s)...) {
		lines = append(lines, c.line)
	}
	d["commands"] = lines
	set("link", w.breakerPage(s.Name))
	return d
}
