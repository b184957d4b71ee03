package secret

import (
	"encoding/base64"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is compared as it is decoded, too: writers escape in many ways, such as \u002B for a plus, and
// one encodes what another has encoded. All of it is linear in the text.
const (
	decodings     = 4  // of a text that is encoded again and again
	longestEntity = 32 // bytes of an entity of HTML
	shortestRun   = 16 // characters of base64 that are decoded
)

// decoded is a text without escapes. The byte i of it was written at from[i] to to[i].
type decoded struct {
	text     []byte
	from, to []int32
}

func (d *decoded) add(b []byte, from, to int32) {
	for _, c := range b {
		if c == 0 { // of UTF-16
			continue
		}
		d.text, d.from, d.to = append(d.text, c), append(d.from, from), append(d.to, to)
	}
}

// decode returns the text without escapes; ok is false if it has none.
func decode(text string) (d decoded, ok bool) {
	if !strings.ContainsAny(text, "\\%&\x00") {
		return decoded{}, false
	}
	d = decoded{text: []byte(text), from: make([]int32, len(text)), to: make([]int32, len(text))}
	for i := range len(text) {
		d.from[i], d.to[i] = int32(i), int32(i)+1
	}
	for range decodings {
		next := decoded{}
		for i := 0; i < len(d.text); {
			plain, n := unescape(d.text[i:])
			next.add(plain, d.from[i], d.to[i+n-1])
			i += n
		}
		if len(next.text) == len(d.text) {
			break
		}
		d = next
	}
	return d, true
}

// unescape returns the first character of a text, without its escape, and how many bytes that has.
func unescape(t []byte) (plain []byte, n int) {
	switch {
	case t[0] == '\\' && len(t) > 1:
		switch t[1] {
		case 'u', 'U':
			if r, n := unicodeEscape(t); n > 0 {
				return utf8.AppendRune(nil, r), n
			}
		case 'x':
			if v, ok := hex(t, 2, 4); ok {
				return []byte{byte(v & 0xff)}, 4
			}
		case '/', '"', '\'', '\\', '`':
			return t[1:2], 2
		}
	case t[0] == '%' && len(t) > 2:
		if v, ok := hex(t, 1, 3); ok {
			return []byte{byte(v & 0xff)}, 3
		}
		if t[1] == 'u' || t[1] == 'U' {
			if v, ok := hex(t, 2, 6); ok {
				return utf8.AppendRune(nil, v), 6
			}
		}
	case t[0] == '&' && len(t) > 2:
		end := slices.Index(t[:min(len(t), longestEntity)], ';')
		if end > 0 {
			entity := string(t[:end+1])
			if plain := html.UnescapeString(entity); plain != entity {
				return []byte(plain), end + 1
			}
		}
	}
	return t[:1], 1
}

// unicodeEscape reads \u002B, \u{2B} and pairs of surrogates; n is 0 if t does not begin with one.
func unicodeEscape(t []byte) (r rune, n int) {
	if len(t) > 3 && t[2] == '{' {
		if end := slices.Index(t[:min(len(t), longestEntity)], '}'); end > 3 {
			if v, ok := hex(t, 3, end); ok {
				return v, end + 1
			}
		}
		return 0, 0
	}
	v, ok := hex(t, 2, 6)
	if !ok {
		return 0, 0
	}
	if utf16.IsSurrogate(v) && len(t) >= 12 && t[6] == '\\' {
		if low, ok := hex(t, 8, 12); ok {
			return utf16.DecodeRune(v, low), 12
		}
	}
	return v, 6
}

func hex(t []byte, from, to int) (rune, bool) {
	if len(t) < to {
		return 0, false
	}
	v, err := strconv.ParseInt(string(t[from:to]), 16, 32)
	return rune(v), err == nil && t[from] != '+' && t[from] != '-'
}

// span is a part of a text.
type span struct{ from, to int }

// hidden returns the parts of a text in which secrets stand in another form than formsOf has. plain are
// the secrets, as they are and as base64. cut: the text was cut off, and may end with the beginning of one.
func hidden(text string, plain []string, cut bool) []span {
	var found []span
	if d, ok := decode(text); ok {
		inText := string(d.text)
		end := inText // without the escape that the cut has left in parts
		if i := strings.LastIndexAny(inText, `\%&`); i >= 0 && len(inText)-i < longestEntity {
			end = inText[:i]
		}
		for _, s := range plain {
			for at := 0; ; {
				i := strings.Index(inText[at:], s)
				if i < 0 {
					break
				}
				at += i
				found = append(found, span{int(d.from[at]), int(d.to[at+len(s)-1])})
				at += len(s)
			}
			for n := len(s) - 1; cut && n >= shortestValue; n-- {
				for _, t := range [...]string{inText, end} {
					if strings.HasSuffix(t, s[:n]) {
						found = append(found, span{int(d.from[len(t)-n]), len(text)})
					}
				}
			}
		}
	}
	return append(found, inBase64(text, plain)...)
}

// inBase64 returns the runs of base64 that hold a secret among other text, such as a whole header.
func inBase64(text string, plain []string) []span {
	var found []span
	for i := 0; i < len(text); i++ {
		if !base64Byte(text[i]) {
			continue
		}
		end := i
		for end < len(text) && base64Byte(text[end]) {
			end++
		}
		if end-i >= shortestRun && runHolds(text[i:end], plain) {
			for end < len(text) && text[end] == '=' {
				end++
			}
			found = append(found, span{i, end})
		}
		i = end
	}
	return found
}

func base64Byte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

var toStandard = strings.NewReplacer("-", "+", "_", "/")

// runHolds reports whether a run of base64, from one of its first four characters on, holds a secret.
func runHolds(run string, plain []string) bool {
	run = toStandard.Replace(run)
	for skip := range 4 {
		part := run[skip:]
		part = part[:len(part)-len(part)%4]
		out, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil {
			continue
		}
		rest := run[skip+len(part):]
		if more, err := base64.RawStdEncoding.DecodeString(rest); err == nil {
			out = append(out, more...)
		}
		inRun := strings.ReplaceAll(string(out), "\x00", "")
		if slices.ContainsFunc(plain, func(s string) bool { return len(s) >= shortestValue && strings.Contains(inRun, s) }) {
			return true
		}
	}
	return false
}

// mask replaces the parts of a text by Mask.
func mask(text string, parts []span) string {
	if len(parts) == 0 {
		return text
	}
	slices.SortFunc(parts, func(a, b span) int { return a.from - b.from })
	var out strings.Builder
	at := 0
	for _, p := range parts {
		if p.to <= at {
			continue
		}
		if p.from >= at {
			out.WriteString(text[at:p.from])
			out.WriteString(Mask)
		}
		at = p.to
	}
	out.WriteString(text[at:])
	return out.String()
}
