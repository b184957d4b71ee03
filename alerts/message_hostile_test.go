package alerts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
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

// hostileNotices are notices of every kind in which all that is foreign is hostile.
func hostileNotices(c composer, name, key, text string, n int, flags uint) []*notice.Notice {
	flag := func(bit int) bool { return flags>>bit&1 == 1 }
	at := time.Unix(int64(n), 0)
	s := situation{
		Now: at.Add(time.Duration(n%3-1) * time.Hour), Destination: name, Name: name, State: breaker.State(flags % 3),
		Backlog: n, Expiring: n % 1000,
	}
	s.thread = thread{
		ID: text, Reason: text, By: text, Since: at, counts: counts{n % 7, n, n},
		Cause: []string{
			breaker.CauseThreshold, breaker.CauseHint, breaker.CauseProbe, breaker.CauseManual, breaker.CauseBudget, text,
		}[flags>>2%6],
		EndedBy: []string{"", breaker.CauseReset, breaker.CauseForced, breaker.CauseLost, text}[flags>>5%5],
	}
	if flag(8) {
		s.Until = at.Add(time.Duration(n))
	}
	if flag(9) {
		s.Ended = at.Add(time.Hour)
	}
	if flag(10) {
		s.Name, s.KeysOpen, s.Keys, s.Refused, s.KeysPermanent = name+allKeys, n%40, n, flag(13), n%3
		for range min(n%40, maxKeys) {
			s.Open = append(s.Open, keySituation{breaker.Status{OpenedAt: at, OpenUntilRedis: s.Until, IncidentCause: s.Cause, Permanent: flag(14)}, key, n - 2})
		}
	}
	for i := range n % 5 {
		s.Answers = append(s.Answers, refusal{At: at, Destination: name, Key: key, Job: text, Status: n % 700 * (i % 2), Body: text[:len(text)*i/5], RetryAfter: time.Duration(n)})
	}
	span := time.Duration(n) * time.Millisecond
	list := []*notice.Notice{c.compose(notice.Opened, &s), composer{c.publicURL, span}.compose(notice.Page, &s), c.compose(notice.Recovered, &s)}
	for _, kind := range []string{unreached, unservedJobs, flows, blockedKeys, redisLost, redisBack} {
		x := single{
			Kind: kind, Destination: name, By: text, At: s.Now, Since: at, Problem: text, Backlog: n, Job: text, Key: key, Others: n, AtLeast: flag(11),
		}
		list = append(list, x.compose(c))
	}
	return list
}

// hold says what is wrong with what is written of hostile texts.
func hold(t testing.TB, c composer, mention, name, key, text string, n int, flags uint) error {
	t.Helper()
	inMarkup := markupOf(t, mention)
	for i, one := range hostileNotices(c, name, key, text, n, flags) {
		for _, webhook := range []bool{false, true} {
			if err := checkMessage(rendered(t, one, mention, webhook), inMarkup); err != nil {
				return fmt.Errorf("notice %d, webhook %v: %w", i, webhook, err)
			}
		}
		if one.Kind.Ends() {
			continue
		}
		p := paged(t, one)
		if len(p.Summary) > 1024 || p.Summary == "" || !utf8.ValidString(p.Summary) {
			return fmt.Errorf("summary of %d bytes: %.100q", len(p.Summary), p.Summary)
		}
		raw, err := json.Marshal(p.Details)
		if err != nil || len(readable.Replace(string(raw))) > 10_000 || !json.Valid(raw) {
			return fmt.Errorf("details of %d bytes: %w", len(raw), err)
		}
	}
	return nil
}

// markupOf is a configured mention in Slack's markup, "" if it is not valid: all that
// precedes the text of a page.
func markupOf(t testing.TB, mention string) string {
	t.Helper()
	tripped := shopTripped()
	page := composer{}.compose(notice.Page, &tripped)
	before, _ := strings.CutSuffix(rendered(t, page, mention, false).Text, rendered(t, page, "", false).Text)
	return strings.TrimSpace(before)
}

func TestHostileTexts(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for i, text := range hostileTexts {
		for flags := range uint(1 << 13) {
			if flags%1999 != uint(i)*47 { // each text meets enough of all combinations
				continue
			}
			mention := []string{"", "@here", "@ann", "U1", text}[flags%5]
			if err := hold(t, composer{publicURL: "https://tidegate.example.com"}, mention, text, text, text, int(flags)*7, flags); err != nil {
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
		if err := hold(t, composer{publicURL: address}, mention, name, key, text, n, flags); err != nil {
			t.Error(err)
		}
	})
}
