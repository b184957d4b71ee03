package alerts

import (
	"slices"
	"strings"

	"github.com/slack-go/slack"
)

// mostKeys is how many keys a message names.
const mostKeys = 10

const keysPaced = "*Now:* the jobs of each key leave slowly at first: 1, 2, 4 … calls in flight (slow start)."

// keysHeadline sums up the keys of a destination.
func keysHeadline(s *situation) title {
	switch {
	case s.over():
		return title{emojiGood, ": no key is rate limited any more, after " + s.lasted()}
	case s.KeysOpen == 1:
		return title{emojiLimited, ": 1 key is rate limited"}
	}
	return title{emojiLimited, ": " + thousands(s.KeysOpen) + " keys are rate limited"}
}

// keyNames names the first keys in one line of a notification: " (alice, bob, …)".
func keyNames(s *situation) string {
	const most = 3
	var names []string
	for _, k := range s.Keys[:min(len(s.Keys), most)] {
		names = append(names, inertName(k.Key))
	}
	if len(names) == 0 {
		return ""
	}
	if s.KeysOpen > len(names) {
		names = append(names, "…")
	}
	return " (" + strings.Join(names, ", ") + ")"
}

// keysIncident is the one message about the keys of a destination.
func (w writer) keysIncident(s *situation) message {
	over := s.over()
	var b sheet
	b.header(headline(s).inTitle(s.Destination))
	list := []field{{"Since", date(s.Since)}}
	if over {
		list = append(list, field{"Until", date(s.Ended)})
	} else {
		list = append(list, field{"Keys limited now", thousands(s.KeysOpen)})
	}
	if s.KeysSeen > 0 {
		list = append(list, field{"Incidents of keys", thousands(s.KeysSeen)})
	}
	if over {
		b.fields(append(list, costFields(s)...)...)
		b.section(keysPaced)
		b.commands("To look", keysLook(s))
		b.link(w.breakerPage(s.Name))
		return compose(&b, summary(s))
	}
	if s.Backlog >= 0 {
		list = append(list, field{"Jobs waiting", thousands(s.Backlog)})
	}
	b.fields(list...)
	b.keyList(s)
	if len(s.Answers) > 0 {
		b.rich(richLine(richBold("Last answers")), refusalList(s.Answers))
	}
	b.section("*What happens now:* the jobs of these keys wait, and lose no retries; those of other keys go on. " +
		"When its time has come, one call tests each key. This message is kept up to date.")
	b.commands("To look and to act", slices.Concat(keysLook(s), keysAct(s)))
	b.link(w.breakerPage(s.Name))
	return compose(&b, summary(s))
}

// keyList shows the keys: which, until when, how many jobs wait, why.
func (b *sheet) keyList(s *situation) {
	if len(s.Keys) == 0 {
		return
	}
	var list []slack.RichTextElement
	for _, k := range s.Keys[:min(len(s.Keys), mostKeys)] {
		text := []slack.RichTextSectionElement{richCode(plainName(k.Key), mostName)}
		if k.Until.IsZero() {
			text = append(text, richText(" until it is reset"))
		} else {
			text = append(text, richText(" until "), richDate(k.Until))
		}
		tail := ""
		if k.Held >= 0 {
			tail = "; " + jobsWait(k.Held)
		}
		if k.Cause != "" {
			tail += "; " + causeWords(k.Cause)
		}
		list = append(list, richLine(append(text, richText(tail))...))
	}
	if more := s.KeysOpen - len(list); more > 0 {
		list = append(list, richLine(richText("and "+count(more, "other", "others"))))
	}
	b.rich(richBullets(list...))
}

// keyShown is the key that commands are shown for: the one limited for longest.
func keyShown(s *situation) string {
	if len(s.Keys) == 0 {
		return "KEY"
	}
	return shellName(s.Keys[0].Key)
}

func keysLook(s *situation) []command {
	destination := shellName(s.Destination)
	list := []command{{"", "tidegate breaker list --destination " + destination}}
	if s.over() {
		return append(list, command{"", "tidegate stats --destination " + destination})
	}
	return append(list, command{"", "tidegate list --destination " + destination + " --key " + keyShown(s) + " --status pending"})
}

func keysAct(s *situation) []command {
	return []command{
		{"call again for a key now, limit or not:", "tidegate breaker reset " + shellName(s.Destination) + "/" + keyShown(s)},
		{"hold the jobs of all keys:", "tidegate queue pause " + shellName(s.Destination)},
	}
}
