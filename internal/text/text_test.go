package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, in string
		limit    int
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
		if got := Line(row.in, row.limit); got != row.want {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
	if got := Line(strings.Repeat("😀", 100_000), 200); utf8.RuneCountInString(got) != 200 || !strings.HasSuffix(got, "😀…") {
		t.Errorf("a long text became %d characters", utf8.RuneCountInString(got))
	}
}

// A cut has whole characters only.
func TestCut(t *testing.T) {
	t.Parallel()
	if got := CutBytes(strings.Repeat("😀", 300), 1024); len(got) != 255*4+len("…") {
		t.Errorf("cut to %d bytes: …%q", len(got), got[len(got)-8:])
	}
	if got := Cut("😀😀😀", 2); got != "😀…" {
		t.Errorf("cut to 2 characters: %q", got)
	}
}
