package text

import (
	"encoding/json"
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

func TestOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                      "plain",
		"Größe 10 µ":                 "Größe 10 µ",
		"a\nb\tc\r\nd":               "a b c  d",
		"\x1b[31mred\x1b[0m\a":       "[31mred[0m",
		"C1 \u009b2J and DEL \x7f":   "C1 2J and DEL ",
		"turned \u202eround\u2066":   "turned round",
		"two\u2028lines":             "two lines",
		"no text \xff\xfe":           "no text \ufffd",
		"a replacement \ufffd stays": "a replacement \ufffd stays",
	} {
		if got := OneLine(in); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", in, got, want)
		}
	}
	if got := Cut(OneLine("äöü\n12345"), 5); got != "äöü …" {
		t.Errorf("cut: %q", got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	text := "a\u009bb\x7fc\u202ed\u2028e é"
	doc, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	doc = append(doc, '\n')
	got := JSON(doc)
	if want := `"a\u009bb\u007fc\u202ed\u2028e é"` + "\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	var back string
	if err := json.Unmarshal(got, &back); err != nil || back != text {
		t.Errorf("means %q (%v), want %q", back, err, text)
	}
}
