package publisher

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is kept of an answer.
const (
	maxRead  = 64 << 10 // of a body, from the network
	maxKept  = 4 << 10  // of a body, with the job
	maxError = 1 << 10  // of an error
)

// clean makes a foreign text safe to keep and to show: valid UTF-8, without
// control characters other than line breaks and tabs, at most limit bytes.
func clean(s string, limit int) string { return shorten(printable(s), limit) }

// printable makes a text valid UTF-8 without control characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
			// Terminal escapes and characters that reorder text.
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// shorten cuts valid UTF-8 to at most limit bytes, in front of a character.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
