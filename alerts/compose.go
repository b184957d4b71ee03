package alerts

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/explain/words"
)

// The examples of messages in testdata and the pictures of them in docs/images/alerts
// are made by the real functions:
//
//go:generate go test -run ^(TestMessages|TestPreviews)$ -count=1 . -args -update

// composer makes notices.
type composer struct {
	publicURL string // base of links, "" for none
}

// Icons that the previews can draw.
const (
	iconLimited = "🔴"
	iconTesting = "🟡"
	iconGood    = "🟢"
	iconByHand  = "⏸️"
	iconPage    = "🚨"
	iconFailed  = "❌"
	iconPoison  = "⛔"
	iconLate    = "⏳"
	iconTrouble = "⚠️"
)

// plain is a line of one span.
func plain(s string) notice.Text { return notice.Text{notice.Plain(s)} }

// instant is a line of an instant.
func instant(t time.Time) notice.Text { return notice.Text{notice.Time(t)} }

// join joins strings, spans and texts to one line.
func join(parts ...any) notice.Text {
	var out notice.Text
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			if p != "" {
				out = append(out, notice.Plain(p))
			}
		case notice.Span:
			out = append(out, p)
		case notice.Text:
			out = append(out, p...)
		}
	}
	return out
}

// nameCode is the name of a destination, a breaker or a job, as code.
func nameCode(s string) notice.Span { return notice.Code(notice.PlainName(s)) }

// Blocks of a body.

func facts(list ...notice.Fact) notice.Block { return notice.Block{Facts: list} }
func paragraph(parts ...any) notice.Block    { return notice.Block{Paragraph: join(parts...)} }
func lines(list ...notice.Text) notice.Block { return notice.Block{Lines: &notice.Lines{Lines: list}} }

func number(name string, n int) notice.Fact {
	return notice.Fact{Name: name, Value: plain(thousands(n))}
}

func when(name string, t time.Time) notice.Fact { return notice.Fact{Name: name, Value: instant(t)} }

func bulleted(line notice.Text, bullets []notice.Text) notice.Block {
	return notice.Block{Lines: &notice.Lines{Lines: []notice.Text{line}, Bullets: bullets}}
}

func commands(title string, list []notice.Command) notice.Block {
	return notice.Block{Commands: &notice.Commands{Title: title, List: list}}
}

// do is a command that needs no explanation, act one that does.
func do(line string) notice.Command        { return notice.Command{Line: line} }
func act(what, line string) notice.Command { return notice.Command{What: what, Line: line} }

const (
	look       = "Inspect"
	lookAndAct = "Inspect and act"
)

// about starts a notice of an incident.
func (c composer) about(s *situation, kind notice.Kind, t notice.Title) *notice.Notice {
	return &notice.Notice{
		Kind: kind, Severity: notice.Critical, Dedup: s.Thread, At: s.Since, Now: s.Now,
		Subject: s.Name, Class: "circuit breaker open", Title: t, Link: c.breakerPage(s.Name),
	}
}

// opened is the message of a thread, whatever state that is in now.
func (c composer) opened(s situation) *notice.Notice {
	n := c.about(&s, notice.Opened, headline(&s))
	n.Summary = summary(&s)
	n.Short = &notice.Short{Line: shortWhy(&s), Commands: plainCommands(lookCommands(&s)[:1])}
	if s.ofKeys() {
		n.Body = keysBody(&s)
		return n
	}
	if s.over() {
		n.Body = append(n.Body, facts(closedFacts(&s)...))
	} else {
		n.Body = append(n.Body, facts(openFacts(&s)...))
	}
	n.Body = append(n.Body, why(&s)...)
	n.Body = append(n.Body, whatHappens(&s))
	if s.over() {
		n.Body = append(n.Body, commands(look, lookCommands(&s)))
	} else {
		n.Body = append(append(n.Body, flapping(&s)...), commands(lookAndAct, slices.Concat(lookCommands(&s), actCommands(&s))))
	}
	n.Footer = join("Tidegate · breaker ", nameCode(s.Name))
	if s.Incident != "" {
		n.Footer = join(n.Footer, " · incident ", nameCode(s.Incident))
	}
	if s.By != "" && !s.byHand() && !s.over() {
		n.Footer = join(n.Footer, " · noticed by ", notice.Quote(s.By, notice.MaxBy))
	}
	return n
}

// reopened is the reply that it is open again after a premature recovery.
func (c composer) reopened(s situation) *notice.Notice {
	n := c.opened(s)
	n.Kind, n.Body, n.Footer = notice.Reopened, nil, nil
	return n
}

// recovered is the reply at the end.
func (c composer) recovered(s situation) *notice.Notice {
	s.State, s.KeysOpen, s.KeysPermanent, s.KeysNoToken = breaker.Closed, 0, 0, 0
	n := c.about(&s, notice.Recovered, headline(&s))
	n.Body = []notice.Block{facts(append([]notice.Fact{{Name: "Lasted", Value: plain(s.lasted())}}, costFacts(&s)...)...)}
	if s.ofKeys() {
		n.Body = append(n.Body, keysPaced)
	} else {
		n.Body = append(n.Body, whatHappens(&s))
	}
	n.Summary = join(notice.Name(s.subject()), n.Title.Rest)
	var short []string
	if s.costsKnown() {
		n.Summary = join(n.Summary, ": "+costs(&s)+backlog(&s, "; "))
		short = append(short, costs(&s))
	} else {
		n.Summary = join(n.Summary, backlog(&s, ": "))
	}
	if s.Backlog > 0 {
		short = append(short, "calls for the backlog ("+count(s.Backlog, "job", "jobs")+") resume slowly")
	}
	n.Short = &notice.Short{Line: upperFirst(join(strings.Join(short, "; "))), Commands: plainCommands(lookCommands(&s)[:1])}
	return n
}

// headline is the state in one line.
func headline(s *situation) notice.Title {
	title := func(icon string, rest ...any) notice.Title {
		return notice.Title{Icon: icon, Name: s.subject(), Rest: join(rest...)}
	}
	switch {
	case s.Refused && s.over():
		return title(iconGood, ": all keys have valid tokens again, after "+s.lasted())
	case s.Refused:
		return title(iconLimited, ": "+refusedKeysText(s))
	case s.ofKeys() && s.over():
		return title(iconGood, ": no key is rate limited any more, after "+s.lasted())
	case s.ofKeys() && s.KeysOpen == 1:
		return title(iconLimited, ": 1 key is rate limited")
	case s.ofKeys():
		return title(iconLimited, ": "+thousands(s.KeysOpen)+" keys are rate limited")
	case s.over():
		return title(iconGood, ended(s)+" after "+s.lasted())
	case !s.open():
		return title(iconTesting, ": testing recovery with one call")
	case s.byHand():
		return title(iconByHand, ": opened by hand", until(s))
	case s.NoToken:
		return title(iconLimited, ": token server unreachable since ", notice.Time(s.Since))
	case s.Cause == breaker.CauseCredentials:
		return title(iconLimited, ": token refused since ", notice.Time(s.Since))
	case s.Cause == breaker.CauseOutage:
		return title(iconLimited, " is down, or refuses every call", until(s))
	case s.Openings > 1:
		return title(iconLimited, " is rate limited again", until(s), ", the "+ordinal(s.Openings)+" time")
	case s.Probes > 0:
		return title(iconLimited, " is still rate limited", until(s))
	}
	return title(iconLimited, " is rate limited", until(s))
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

// ended words how it ended.
func ended(s *situation) string {
	switch s.EndedBy {
	case breaker.CauseReset:
		return " was closed by hand"
	case breaker.CauseForced:
		return " is kept closed by hand,"
	case breaker.CauseLost:
		return ": closed, " + causeText(s.EndedBy) + ","
	}
	return " has recovered"
}

func until(s *situation) notice.Text {
	switch {
	case !s.Until.IsZero():
		return join(" until ", notice.Time(s.Until))
	case s.byHand():
		return plain(" until it is reset")
	}
	return nil
}

// summary is the message in one line.
func summary(s *situation) notice.Text {
	line := join(notice.Name(s.subject()), headline(s).Rest)
	switch {
	case s.over():
		return join(line, backlog(s, ": "))
	case s.ofKeys():
		return join(line, keyNames(s, " (", ")"), backlog(s, "; "))
	case !s.open():
		return join(line, backlog(s, "; "))
	}
	return join(line, reasonPart(s), waiting(s))
}

// reasonPart is the reason as the continuation of a headline.
func reasonPart(s *situation) notice.Text {
	if s.byHand() {
		return join(", ", reason(s))
	}
	return join(": ", reason(s))
}

// reason is why it opened, in one line.
func reason(s *situation) notice.Text {
	if s.byHand() {
		line := plain("by an operator")
		if s.By != "" {
			line = join("by ", notice.Foreign(s.By, notice.MaxBy))
		}
		if s.Reason != "" {
			line = join(line, " (", notice.Foreign(s.Reason, notice.MaxReason), ")")
		}
		return line
	}
	if n := refusals(s); n != "" && s.Cause != breaker.CauseBudget {
		return plain(n)
	}
	return join(s.causeText(), refusalReason(s))
}

// refusalReason is why the API refused the credentials, as the continuation of a line.
func refusalReason(s *situation) notice.Text {
	if s.Cause != breaker.CauseCredentials || s.Reason == "" {
		return nil
	}
	return join(" (", notice.Foreign(s.Reason, notice.MaxReason), ")")
}

// shortWhy is the line of a short body.
func shortWhy(s *situation) notice.Text {
	switch {
	case s.ofKeys():
		if names := keyNames(s, "keys ", ""); names != nil {
			return upperFirst(join(names, backlog(s, "; ")))
		}
		return plain(backlog(s, ""))
	case s.over() || !s.open():
		return plain(backlog(s, ""))
	}
	return upperFirst(join(reason(s), waiting(s)))
}

func upperFirst(t notice.Text) notice.Text {
	if len(t) > 0 && t[0].Style == notice.StylePlain && t[0].Text != "" && t[0].Text[0] >= 'a' && t[0].Text[0] <= 'z' {
		t = slices.Clone(t)
		t[0].Text = strings.ToUpper(t[0].Text[:1]) + t[0].Text[1:]
	}
	return t
}

func openFacts(s *situation) []notice.Fact {
	end := notice.Fact{Name: "Until"}
	timed := s.State == breaker.Open && s.open() && !s.Until.IsZero()
	switch {
	case timed:
		end.Value = instant(s.Until)
	case s.State == breaker.Open && s.open():
		end.Value = plain("it is reset")
	}
	out := []notice.Fact{when("Since", s.Since), end}
	if s.Backlog >= 0 {
		out = append(out, number("Jobs waiting", s.Backlog))
	}
	if s.Expiring >= 0 && timed {
		out = append(out, number("Expire before then", s.Expiring))
	}
	if s.Probes > 0 {
		out = append(out, number("Failed probes", s.Probes))
	}
	return out
}

func closedFacts(s *situation) []notice.Fact {
	out := append([]notice.Fact{when("Since", s.Since), when("Until", s.Ended)}, costFacts(s)...)
	if s.Openings > 1 {
		out = append(out, notice.Fact{Name: "Opened", Value: plain(count(s.Openings, "time", "times"))})
	}
	return out
}

// costFacts are the costs, if they are known.
func costFacts(s *situation) []notice.Fact {
	var out []notice.Fact
	if s.costsKnown() {
		out = append(out, number("Wasted calls", s.Wasted), number("Failed probes", s.Probes), number("Jobs rescheduled", s.Rescheduled))
	}
	if s.Backlog >= 0 {
		out = append(out, notice.Fact{Name: "Backlog now", Value: plain(count(s.Backlog, "job", "jobs"))})
	}
	return out
}

// why explains why it opened, with the last answers of the API.
func why(s *situation) []notice.Block {
	if s.over() && !s.byHand() && (s.Cause == "" || s.Cause == breaker.CauseProbe) {
		if s.Learned != "" {
			return []notice.Block{bulleted(plain("It keeps a learned limit: "+s.Learned), nil)}
		}
		return nil // its cause is why it stayed open
	}
	line := join(notice.Bold("Why: "), s.causeText())
	var bullets []notice.Text
	if s.byHand() {
		if s.By != "" {
			line = join(line, " by ", notice.Quote(s.By, notice.MaxBy))
		}
		if s.Reason != "" {
			line = join(line, notice.Foreign(": "+s.Reason, notice.MaxReason+len(": ")))
		}
	} else {
		if n := refusals(s); n != "" && !s.over() {
			line = join(line, " ("+n+")")
		}
		line = join(line, refusalReason(s))
		if s.Learned != "" && !isRefused(s.Cause, s.Permanent) && s.Cause != breaker.CauseOutage {
			line = join(line, "; learned limit: "+s.Learned)
		}
		bullets = answerList(s.Answers)
	}
	return []notice.Block{bulleted(line, bullets)}
}

// maxAnswersShown is how many answers are shown.
const maxAnswersShown = 3

// answerList lists answers of an API: time, status and text.
func answerList(answers []refusal) []notice.Text {
	var out []notice.Text
	for i, a := range answers[:min(len(answers), maxAnswersShown)] {
		line := join(notice.Time(a.At), "  ")
		if a.Status != 0 {
			line = join(line, notice.Bold(strconv.Itoa(a.Status)), "  ")
		}
		switch {
		case a.Body == "":
			line = join(line, "no text")
		case i > 0 && a.Body == answers[i-1].Body:
			line = join(line, "the same")
		default:
			line = join(line, notice.Quote(a.Body, notice.MaxBody))
		}
		if a.RetryAfter > 0 {
			line = join(line, "  asks to wait for "+span(a.RetryAfter))
		}
		out = append(out, line)
	}
	return out
}

// whatHappens explains what happens without action.
func whatHappens(s *situation) notice.Block {
	name := nameCode(s.Name)
	now, happens := notice.Bold("Now:"), notice.Bold("What happens now:")
	const paced = "calls resume slowly: 1, 2, 4 … in flight (slow start)"
	switch {
	case s.over() && s.EndedBy == breaker.CauseForced:
		return paragraph(now, " calls go out whatever the API answers, until an operator resets the breaker.")
	case s.over() && s.EndedBy == breaker.CauseLost:
		return paragraph(now, " calls go out again. If the API still limits, its next answers open the breaker again.")
	case s.over():
		return paragraph(now, " "+paced+".")
	case !s.open():
		return paragraph(happens, " one call of the whole fleet, the probe, tests ", name, ". If it succeeds, "+paced+
			". If it is refused, the breaker opens again, and this message says until when.")
	case s.Until.IsZero():
		return paragraph(happens, " nothing by itself. No worker calls ", name, " until an operator resets the breaker; its jobs wait, and expire if their time comes.")
	}
	if s.NoToken {
		return paragraph(happens, " its jobs wait, and lose no retries. At ", notice.Time(s.Until), " one call asks the token server again.")
	}
	if s.Cause == breaker.CauseCredentials {
		return paragraph(happens, " its jobs wait, and lose no retries. At ", notice.Time(s.Until), " one call, the probe, tries the token again. ",
			notice.Bold("Renew the token of "), name, "; the breaker closes when it is accepted.")
	}
	return paragraph(happens, " no worker calls ", name, " before then; its jobs wait, and lose no retries. Then one call, the probe, tests it. If it succeeds, "+
		paced+". If it is refused, this message says until when.")
}

// flapping advises on a breaker that opens again and again.
func flapping(s *situation) []notice.Block {
	if s.Route != "" && s.open() && !s.byHand() {
		return []notice.Block{paragraph(notice.Bold("One route:"), " ", notice.Foreign(s.Route, notice.MaxReason), ".")}
	}
	if s.SuggestedRate != "" && s.open() {
		return []notice.Block{paragraph(notice.Bold("This API spaces calls:"), " set ",
			notice.Code("DESTINATION_…_"+words.RateOf(s.Name)), ", about "+words.Rate(s.SuggestedRate)+".")}
	}
	if s.Openings <= 1 || s.byHand() || s.Cause == breaker.CauseCredentials || s.Cause == breaker.CauseOutage {
		return nil
	}
	return []notice.Block{paragraph(notice.Bold("It flaps:"), " each time after it had recovered, the calls met the limit again. "+
		"A configured rate spreads them: ", notice.Code("DESTINATION_…_RATE"), ", such as ", notice.Code("60/1h"), ".")}
}

// lookCommands are commands that change nothing.
func lookCommands(s *situation) []notice.Command {
	name, destination := shellName(s.Name), shellName(s.Destination)
	key := ""
	out := []notice.Command{do("tidegate breaker get " + name), do("tidegate breaker incidents " + name)}
	if _, k, keyed := strings.Cut(notice.PlainName(s.Name), "/"); keyed {
		key = " --key " + shellName(k)
	}
	if s.ofKeys() {
		out, key = []notice.Command{do("tidegate breaker list --destination " + destination)}, " --key "+keyShown(s)
	}
	if s.over() {
		return append(out, do("tidegate stats --destination "+destination))
	}
	return append(out, do("tidegate list --destination "+destination+key+" --status pending"))
}

// actCommands are commands that act on the breaker or its jobs.
func actCommands(s *situation) []notice.Command {
	destination := shellName(s.Destination)
	if s.Refused {
		return []notice.Command{
			act("try the token of a key now:", "tidegate breaker reset "+destination+"/"+keyShown(s)),
			act("give up the jobs of a key:", "tidegate cancel --destination "+destination+" --key "+keyShown(s)),
		}
	}
	if s.ofKeys() {
		return []notice.Command{
			act("call again for a key now, limit or not:", "tidegate breaker reset "+destination+"/"+keyShown(s)),
			act("pause the jobs of all keys:", "tidegate queue pause "+destination),
		}
	}
	if s.Cause == breaker.CauseCredentials {
		return []notice.Command{act("try the token now:", "tidegate breaker reset "+shellName(s.Name)), act("pause its jobs:", "tidegate queue pause "+destination)}
	}
	return []notice.Command{
		act("call again now, limit or not:", "tidegate breaker reset "+shellName(s.Name)),
		act("pause its jobs, also after the limit:", "tidegate queue pause "+destination),
	}
}

// plainCommands leaves out the explanations.
func plainCommands(list []notice.Command) []notice.Command {
	for i := range list {
		list[i].What = ""
	}
	return list
}

// shellName is a name in a command: a job's id that a user chose may begin with a
// dash, and what is not a valid name must not be expanded by a shell.
func shellName(s string) string {
	s = notice.PlainName(s)
	if strings.ContainsAny(s, "?*") || strings.HasPrefix(s, "-") {
		return "'" + s + "'"
	}
	return s
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
	destination, key, keyed := strings.Cut(notice.PlainName(name), "/")
	address := u.Scheme + base[len(u.Scheme):] + "/breakers/" + url.PathEscape(destination)
	if keyed && key != "*" {
		address += "/" + url.PathEscape(key)
	}
	if len(address) > maxURL {
		return ""
	}
	return address
}

// --- keys

// maxKeys is how many keys a message names.
const maxKeys = 10

var keysPaced = paragraph(notice.Bold("Now:"), " calls resume slowly for each key: 1, 2, 4 … in flight (slow start).")

// keyNames names the first keys in one line: "alice, bob, …". nil if there are none.
func keyNames(s *situation, before, after string) notice.Text {
	const most = 3
	var out notice.Text
	for i, k := range s.Keys[:min(len(s.Keys), most)] {
		if i > 0 {
			before = ", "
		}
		out = join(out, before, notice.Name(k.Key))
	}
	if out == nil {
		return nil
	}
	if s.KeysOpen > min(len(s.Keys), most) {
		out = join(out, ", …")
	}
	return join(out, after)
}

// keysBody is the body of the one message about the keys of a destination.
func keysBody(s *situation) []notice.Block {
	list := []notice.Fact{when("Since", s.Since)}
	if s.over() {
		list = append(list, when("Until", s.Ended))
	} else {
		list = append(list, openKeysFact(s))
	}
	if s.KeysSeen > 0 && !s.Refused {
		list = append(list, number("Incidents of keys", s.KeysSeen))
	}
	if s.over() {
		return []notice.Block{facts(append(list, costFacts(s)...)...), keysPaced, commands(look, lookCommands(s))}
	}
	if s.Backlog >= 0 {
		list = append(list, number("Jobs waiting", s.Backlog))
	}
	body := []notice.Block{facts(list...)}
	if keys := keyList(s); keys != nil {
		body = append(body, notice.Block{Lines: &notice.Lines{Bullets: keys}})
	}
	if len(s.Answers) > 0 {
		body = append(body, notice.Block{Lines: &notice.Lines{Lines: []notice.Text{{notice.Bold("Last answers")}}, Bullets: answerList(s.Answers)}})
	}
	if s.Refused {
		if s.Reason != "" {
			body = append(body, paragraph(notice.Bold("Why: "), notice.Foreign(s.Reason, notice.MaxReason)))
		}
		return append(body, paragraph(notice.Bold("What happens now:"), " the jobs of these keys wait, and lose no retries; the jobs of other keys continue. "+
			"This message is kept up to date."),
			bulleted(notice.Text{notice.Bold("What to do")}, advice(s)), commands(lookAndAct, slices.Concat(lookCommands(s), actCommands(s))))
	}
	return append(body,
		paragraph(notice.Bold("What happens now:"), " the jobs of these keys wait, and lose no retries; the jobs of other keys continue. "+
			"When its time has come, one call tests each key. This message is kept up to date."),
		commands(lookAndAct, slices.Concat(lookCommands(s), actCommands(s))))
}

// openKeysFact counts the keys that are open now.
func openKeysFact(s *situation) notice.Fact {
	if s.Refused {
		return number("Keys that wait", s.KeysOpen)
	}
	return number("Keys limited now", s.KeysOpen)
}

// keyList shows the keys: which, until when, how many jobs wait, why.
func keyList(s *situation) []notice.Text {
	var out []notice.Text
	for _, k := range s.Keys[:min(len(s.Keys), maxKeys)] {
		line := join(nameCode(k.Key))
		if s.Refused {
			line = join(line, " since ", notice.Time(k.Since))
		} else if k.Until.IsZero() {
			line = join(line, " until it is reset")
		} else {
			line = join(line, " until ", notice.Time(k.Until))
		}
		tail := ""
		if k.Held >= 0 {
			tail = "; " + jobsWait(k.Held)
		}
		switch {
		case k.Permanent:
			tail += "; the user must sign in again"
		case k.NoToken:
			tail += "; there is no token"
		case s.Refused:
			tail += "; renew the token"
		case k.Cause != "":
			tail += "; " + causeText(k.Cause)
		}
		out = append(out, join(line, tail))
	}
	if more := s.KeysOpen - len(out); out != nil && more > 0 {
		out = append(out, plain("and "+count(more, "other", "others")))
	}
	return out
}

// keyShown is the key that commands are shown for: the one limited for longest.
func keyShown(s *situation) string {
	if len(s.Keys) == 0 {
		return "KEY"
	}
	return shellName(s.Keys[0].Key)
}
