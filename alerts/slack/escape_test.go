package slack

import "testing"

// What Slack would make something of is broken in each place where text stands.
func TestForeignTextIsInert(t *testing.T) {
	t.Parallel()
	const j = joiner
	const nasty = "<!channel> *b* _i_ `c` & @here #x :tada: http://e.example"
	for _, row := range []struct{ name, got, want string }{
		{"code in mrkdwn", code(nasty), "`&lt;" + j + "!channel&gt; *b* _i_ ˋcˋ &amp; @" + j + "here #" + j + "x :tada: http://e.example`"},
		{"code of nothing", code(""), "`–`"},
		{"notification", inert(nasty), "&lt;" + j + "!channel&gt; ∗b∗ ˍiˍ ˋcˋ &amp; @" + j + "here #" + j + "x :" + j + "tada: http:" + j + "//e.example"},
		{"rich text", breakMentions(nasty), "<" + j + "!channel> *b* _i_ `c` & @" + j + "here #" + j + "x :tada: http://e.example"},
		{"name", breakColons("shop/:tada:"), "shop/:" + j + "tada:"},
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
