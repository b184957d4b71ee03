// Package text makes text of others fit to be shown: on one line, with visible characters
// only, cut to a length.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns s as one line of at most limit characters. It drops what is not visible:
// control characters, changes of the direction of writing, invisible characters and piles
// of accents. Invalid UTF-8 becomes �, a cut ends in ….
func Line(s string, limit int) string {
	var out strings.Builder
	n, marks, space := 0, 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r): // line breaks are control characters too
			space = n > 0
			continue
		case !unicode.IsPrint(r):
			// Control and format characters (bidi overrides, zero width, tags), private
			// use, and what Unicode has not assigned.
			continue
		case r > unicode.MaxASCII && unicode.In(r, unicode.Mn, unicode.Me):
			if marks++; marks > 2 {
				continue
			}
		default:
			marks = 0
		}
		if n >= limit { // more than fits: stop, whatever its length
			return strings.TrimRight(dropLast(out.String()), " ") + "…"
		}
		if space && n+1 < limit {
			out.WriteByte(' ')
			n++
		}
		space = false
		out.WriteRune(r)
		n++
	}
	return out.String()
}

// Printable returns s as valid UTF-8 without control characters other than line breaks and
// tabs, and without characters that reorder text.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if dangerous(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// OneLine is Printable with a space for each line break and tab, for terminals and logs.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case !dangerous(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// JSON returns a JSON document with \u escapes for characters that a terminal acts on. They
// occur in strings only, so that the document means the same.
func JSON(doc []byte) []byte {
	var out []byte
	done := 0
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		if dangerous(r) && r != '\n' {
			out = append(out, doc[done:i]...)
			out = fmt.Appendf(out, `\u%04x`, r)
			done = i + size
		}
		i += size
	}
	return append(out, doc[done:]...)
}

// dangerous reports whether a terminal acts on the character, or writes the text after it in
// another direction.
func dangerous(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}

// Head returns the first limit bytes of valid UTF-8, whole characters only.
func Head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Cut shortens s to limit characters. A cut ends in ….
func Cut(s string, limit int) string {
	n := 0
	for i := range s {
		if n == limit {
			return dropLast(s[:i]) + "…"
		}
		n++
	}
	return s
}

// Quote returns s in double quotes, escaped, and shortened to limit characters before that.
func Quote(s string, limit int) string { return strconv.Quote(Cut(s, limit)) }

// CutBytes shortens s, as valid UTF-8, to limit bytes, at least 3, whole characters only. A cut
// ends in ….
func CutBytes(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= limit {
		return s
	}
	return Head(s, limit-len("…")) + "…"
}

func dropLast(s string) string {
	_, size := utf8.DecodeLastRuneInString(s)
	return s[:len(s)-size]
}

// HeaderName returns the name of a header as CGI and the servers that follow it (RFC 3875, section
// 4.1.18) tell names apart: in lower case, with a hyphen for each character that is not a letter
// or a digit.
func HeaderName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, strings.TrimSpace(name))
}
