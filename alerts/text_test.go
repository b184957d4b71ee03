package alerts

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, in string
		most     int
		want     string
	}{
		{"plain", "rate limited", 20, "rate limited"},
		{"fits exactly", "rate limited", 12, "rate limited"},
		{"cut", "rate limited", 11, "rate limit…"},
		{"cut at a space", "rate limited", 6, "rate…"},
		{"lines become one", " a\r\n\tb\u2028c\n\n", 20, "a b c"},
		{"control characters", "a\x00b\x1b[2Jc\x7f\u0085d", 20, "ab[2Jc d"},
		{"bidi overrides", "a\u202eb\u2066c\u200fd\u061ce", 20, "abcde"},
		{"invisible", "a\u200bb\u2060c\ufeffd\u00ade\U000e0041f", 20, "abcdef"},
		{"private and unassigned", "a\ue000b\uffffc", 20, "abc"},
		{"right to left stays", "שלום", 20, "שלום"},
		{"four bytes cut between characters", "😀😀😀", 2, "😀…"},
		{"broken UTF-8", "a\xffb\xf0\x9f", 20, "a�b��"},
		{"piles of accents", "e\u0301\u0301\u0301\u0301x\u0301", 20, "e\u0301\u0301x\u0301"},
		{"nothing to see", "\x00\u200b \n", 20, ""},
	} {
		if got := clean(row.in, row.most); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if got := clean(strings.Repeat("😀", 100_000), mostBody); utf8.RuneCountInString(got) != mostBody || !strings.HasSuffix(got, "😀…") {
		t.Errorf("a long text became %d characters", utf8.RuneCountInString(got))
	}
}

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
		{"name", plainName("shop/<!here>`$(x)"), "shop/??here????x?"},
		{"name of nothing", plainName("\n"), "?"},
		{"name in mrkdwn", codeName("shop/a_b@c:d"), "`shop/a_b@c:d`"},
		{"name in a header", titleName("shop/:tada:"), "shop/:" + j + "tada:"},
		{"long name in a header", titleName(strings.Repeat("a", 200)), strings.Repeat("a", mostTitle-1) + "…"},
		{"name in a notification", inertName("a@here"), "a@" + j + "here"},
		{"name in a command", shellName("shop/alice@example.com:1"), "shop/alice@example.com:1"},
		{"expanding name in a command", shellName("$(reboot)*"), "'??reboot?*'"},
		{"name like a flag", shellName("--help"), "'--help'"},
	} {
		if row.got != row.want {
			t.Errorf("%s: %q, want %q", row.name, row.got, row.want)
		}
	}
}
