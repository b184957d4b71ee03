package slack

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
)

// What Slack would make something of is broken in each place where text stands.
func TestForeignTextIsInert(t *testing.T) {
	t.Parallel()
	const j = joiner
	const nasty = "<!channel> *b* _i_ `c` & @here #x :tada: http://e.example"
	for _, row := range []struct{ name, got, want string }{
		{"code in mrkdwn", code(nasty, 100), "`&lt;" + j + "!channel&gt; *b* _i_ ˋcˋ &amp; @" + j + "here #" + j + "x :tada: http://e.example`"},
		{"code of nothing", code("\x00", 100), "`–`"},
		{"notification", inert(nasty, 100), "&lt;" + j + "!channel&gt; ∗b∗ ˍiˍ ˋcˋ &amp; @" + j + "here #" + j + "x :" + j + "tada: http:" + j + "//e.example"},
		{"rich text", literal(nasty, 100), "<" + j + "!channel> *b* _i_ `c` & @" + j + "here #" + j + "x :tada: http://e.example"},
		{"name", notice.PlainName("shop/<!here>`$(x)"), "shop/??here????x?"},
		{"name of nothing", notice.PlainName("\n"), "?"},
		{"name in mrkdwn", mrkdwn(notice.Text{notice.Code(notice.PlainName("shop/a_b@c:d"))}), "`shop/a_b@c:d`"},
		{"name in a header", titleName("shop/:tada:"), "shop/:" + j + "tada:"},
		{"long name in a header", titleName(strings.Repeat("a", 200)), strings.Repeat("a", maxTitle-1) + "…"},
		{"name in a notification", inertName("a@here"), "a@" + j + "here"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, want %q", row.name, row.got, row.want)
		}
	}
}

func TestMentionText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                      "",
		"@here":                 "<!here>",
		"@channel":              "<!channel>",
		"@everyone":             "<!everyone>",
		"@oncall":               "@oncall",
		" @jean-luc.p ":         "@jean-luc.p",
		"U0123ABCD":             "<@U0123ABCD>",
		"W0123ABCD":             "<@W0123ABCD>",
		"S0123ABCD":             "<!subteam^S0123ABCD>",
		"<@U0123ABCD>":          "<@U0123ABCD>",
		"<!subteam^S0123ABCD>":  "<!subteam^S0123ABCD>",
		"<!here>":               "<!here>",
		"<!channel> hello":      "",
		"<https://e.example|x>": "",
		"oncall":                "",
		"@on call":              "",
		"U0123ABCD>":            "",
	} {
		if got := mentionText(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestDate(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 34, 55, 1, time.FixedZone("CET", 3600)) // rounded up
	for _, row := range []struct{ name, got, want string }{
		{"mrkdwn", date(at), "<!date^1795260896^{date_short_pretty} {time_secs}|2026-11-21 11:34:56 UTC>"},
		{"not known", date(time.Time{}), "–"},
		{"before 1970", date(time.Unix(-1, 0)), "1969-12-31 23:59:59 UTC"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, want %q", row.name, row.got, row.want)
		}
	}
}
