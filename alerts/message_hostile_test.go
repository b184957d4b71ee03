package alerts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/redistest"
)

// hostileTexts are what an API, an operator or a job's id may hold.
var hostileTexts = []string{
	"",
	" ",
	"<!channel> <!here|hi> <@U123> <#C123|general> <https://evil.example|Click> @here @channel #general",
	"*bold* _italic_ ~struck~ `code` ```\nblock\n``` > quote :tada: https://evil.example mailto:a@b.example",
	strings.Repeat("<!channel>", 10_000),
	strings.Repeat("😀", 25_000),
	strings.Repeat("a", 199) + "😀😀",
	strings.Repeat("&", 5000),
	"\x00\x01\x1b[2J\x7f\r\n\t\u0085\u2028\u2029",
	"\u202egnirts\u202c \u2066x\u2069 \u200f\u061c \ufeff\u200b\u00ad\U000e0041",
	"שלום עולם مرحبا بالعالم",
	"a\xff\xfe\xf0\x9f\x98",
	"x" + strings.Repeat("\u0301", 500),
	"&lt;!channel&gt; &amp;lt;",
	"\u2060<\u2060!channel>",
	"\ufffe\uffff\U0010ffff\ue000",
	"$(reboot) `reboot` ; rm -rf ~ ' \" -rf --help",
	strings.Repeat("`", 400),
	strings.Repeat("word ", 5000),
	"|>^<!date^1^{date}|x>",
}

// hostileMessages are messages of every kind in which all that is foreign is hostile.
func hostileMessages(w writer, name, key, text string, n int, flags uint) []message {
	flag := func(bit int) bool { return flags>>bit&1 == 1 }
	at := time.Unix(int64(n), 0)
	s := situation{
		Now: at.Add(time.Duration(n%3-1) * time.Hour), Destination: name, Name: name, Case: text, Incident: text,
		State: breaker.State(flags % 3), Cause: []string{
			breaker.CauseThreshold, breaker.CauseHint, breaker.CauseProbe, breaker.CauseManual, breaker.CauseBudget, text,
		}[flags>>2%6],
		Reason: text, By: text, Since: at, Openings: n % 5, Probes: n % 7, Wasted: n, Rescheduled: n, Backlog: n, Expiring: n % 1000,
		EndedBy: []string{"", breaker.CauseReset, breaker.CauseForced, breaker.CauseLost, text}[flags>>5%5],
	}
	if flag(8) {
		s.Until = at.Add(time.Duration(n))
	}
	if flag(9) {
		s.Ended = at.Add(time.Hour)
	}
	switch {
	case flag(10):
		s.Name, s.KeysOpen, s.KeysSeen = name+allKeys, n%40, n
		for range n % 40 {
			s.Keys = append(s.Keys, keySituation{Key: key, Since: at, Until: s.Until, Cause: s.Cause, Held: n - 2})
		}
	case flag(11):
		s.Name = name + "/" + key
	}
	for i := range n % 5 {
		s.Answers = append(s.Answers, Answer{At: at, Destination: name, Key: key, Job: text, Status: n % 700 * (i % 2), Body: text[:len(text)*i/5], RetryAfter: time.Duration(n)})
	}
	span := time.Duration(n) * time.Millisecond
	return []message{
		w.incident(s), w.page(s, span), w.recovery(s), w.shortOpened(s), w.shortPage(s, span), w.shortRecovery(s),
		w.failedBurst(burst{name, n, span, at, text, key}),
		w.poisonJob(poisoned{name, key, text, n, text, at}),
		w.oldestPending(overdue{name, at, span, s.Now, n, s.State, s.Until, flag(12), s.Ended}),
		w.redisLost(outage{text, at, time.Time{}, text}), w.redisBack(outage{text, at, s.Now, text}),
		w.unreachedDestination(unreached{name, at, s.Now, text, n}),
		w.undeliveredAlerts(undelivered{n, at, text, key}),
	}
}

// hold says what is wrong with what is written of hostile texts.
func hold(w writer, name, key, text string, n int, flags uint) error {
	for i, m := range hostileMessages(w, name, key, text, n, flags) {
		if err := checkMessage(m, w.mentionText()); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	s := situation{Destination: name, Name: name, Cause: text, Reason: text, By: text, Incident: text, State: breaker.State(flags % 3)}
	s.Answers = []Answer{{Body: text}}
	summary := w.pagerSummary(s, time.Minute)
	if len(summary) > mostSummary || summary == "" || !utf8.ValidString(summary) {
		return fmt.Errorf("summary of %d bytes: %.100q", len(summary), summary)
	}
	raw, err := json.Marshal(w.pagerDetails(s))
	if err != nil || len(raw) > 10_000 || !json.Valid(raw) {
		return fmt.Errorf("details of %d bytes: %w", len(raw), err)
	}
	return nil
}

func TestHostileTexts(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for i, text := range hostileTexts {
		for flags := range uint(1 << 13) {
			if flags%997 != uint(i)*47 { // each text meets enough of all combinations
				continue
			}
			w := writer{"https://tidegate.example.com", []string{"", "@here", "@ann", "U1", text}[flags%5]}
			if err := hold(w, text, text, text, int(flags)*7, flags); err != nil {
				t.Fatalf("text %d %.60q, flags %b: %v", i, text, flags, err)
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	for i, text := range hostileTexts {
		if len(text) > 3000 { // TestHostileTexts has these; here they would only be slow
			continue
		}
		f.Add("shop", "alice", text, "@here", "https://tidegate.example.com/", i, uint(i*397))
		f.Add(text, text, "rate limited", text, text, -i, uint(i*1031))
	}
	f.Fuzz(func(t *testing.T, name, key, text, mention, address string, n int, flags uint) {
		w := writer{address, mention}
		if m := w.mentionText(); m != "" && !mentionName.MatchString(m) && !mentionMarkup.MatchString(m) {
			t.Errorf("mention %q", m)
		}
		if err := hold(w, name, key, text, n, flags); err != nil {
			t.Error(err)
		}
	})
}
