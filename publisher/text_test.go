package publisher

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, in string
		limit    int
		want     string
	}{
		{"empty", "", 10, ""},
		{"plain", "héllo wörld ☃", 100, "héllo wörld ☃"},
		{"line breaks and tabs stay", "a\nb\tc", 100, "a\nb\tc"},
		{"carriage returns go", "a\r\nb", 100, "a\nb"},
		{"NUL, BEL, backspace, DEL", "a\x00b\x07c\x08d\x7fe", 100, "abcde"},
		{"C1 controls", "a\u0080b\u0085c\u009bd", 100, "abcd"},
		{"colour", "\x1b[1;31mred\x1b[0m", 100, "[1;31mred[0m"},
		{"title of the window", "\x1b]0;owned\x07", 100, "]0;owned"},
		{"line separators", "a\u2028b\u2029c", 100, "abc"},
		{"overrides of direction", "a\u202ab\u202bc\u202cd\u202de\u202ef", 100, "abcdef"},
		{"isolates of direction", "a\u2066b\u2067c\u2068d\u2069e", 100, "abcde"},
		{"broken UTF-8", "a\xffb\xc3", 100, "a\ufffdb\ufffd"},
		{"exactly the limit", "abcd", 4, "abcd"},
		{"one byte more", "abcde", 4, "abcd"},
		{"cut before a two-byte character", "abcé", 4, "abc"},
		{"cut before a four-byte character", "a😀b", 4, "a"},
		{"cut behind a character", "abé", 4, "abé"},
		{"what goes does not count", "\x1b\x1b\x1b\x1bab", 4, "ab"},
		// A replacement is longer than what it replaces.
		{"replacements count", "a\xffb\xffc\xff", 8, "a\ufffdb\ufffd"},
		{"only broken bytes", strings.Repeat("\x80", 100), 8, "\ufffd"},
		{"limit 0", "abc", 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := clean(tc.in, tc.limit); got != tc.want {
				t.Errorf("clean(%q, %d) = %q, want %q", tc.in, tc.limit, got, tc.want)
			}
		})
	}
}

// Whatever comes in, what goes out is short, readable and stays so.
func FuzzClean(f *testing.F) {
	f.Add("a\xffb\x1b[31m", 8)
	f.Add("é\u202e😀", 3)
	f.Add(strings.Repeat("\x80", 20), 5)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = max(0, limit)
		got := clean(s, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("clean(%q, %d) = %q: %d bytes", s, limit, got, len(got))
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }); i >= 0 {
			t.Errorf("clean(%q, %d) = %q: a control character at %d", s, limit, got, i)
		}
		if again := clean(got, limit); again != got {
			t.Errorf("cleaned twice, %q becomes %q", got, again)
		}
	})
}
