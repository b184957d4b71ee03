package secret

import (
	"encoding/base64"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is compared as it is decoded, too: writers escape in many ways, such as \u002B for a plus, and
// one encodes what another has encoded. All of it is linear in the text.
const (
	decodings     = 4  // of a text that is encoded again and again
	longestEntity = 32 // bytes of an entity of HTML
	shortestRun   = 16 // characters of base64 that are decoded
	nestings      = 2  // of what base64 holds: escapes, and base64 again
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
		case '0', '1', '2', '3':
			if v, ok := digits(t, 1, 4, 8); ok {
				return []byte{byte(v & 0xff)}, 4
			}
		case 'n', 'r':
			return []byte{'\n'}, 2
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
		if r, n := numericEntity(t); n > 0 {
			return utf8.AppendRune(nil, r), n
		}
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

// numericEntity reads &#43; and &#x2B;, also without the semicolon; n is 0 if t does not begin with one.
func numericEntity(t []byte) (r rune, n int) {
	if t[1] != '#' {
		return 0, 0
	}
	from, base := 2, 10
	if t[2] == 'x' || t[2] == 'X' {
		from, base = 3, 16
	}
	n = from
	for n < min(len(t), longestEntity) && strings.IndexByte("0123456789abcdefABCDEF"[:base+base/16*6], t[n]) >= 0 {
		n++
	}
	v, ok := digits(t, from, n, base)
	if !ok || v > unicode.MaxRune {
		return 0, 0
	}
	switch {
	case n == len(t): // it may have been cut off
		return 0, 0
	case t[n] == ';':
		n++
	}
	return v, n
}

// unicodeEscape reads \u002B, \u{2B}, \U0000002B and pairs of surrogates; n is 0 if t does not begin with one.
func unicodeEscape(t []byte) (r rune, n int) {
	if len(t) > 3 && t[2] == '{' {
		if end := slices.Index(t[:min(len(t), longestEntity)], '}'); end > 3 {
			if v, ok := hex(t, 3, end); ok {
				return v, end + 1
			}
		}
		return 0, 0
	}
	if t[1] == 'U' {
		if v, ok := hex(t, 2, 10); ok && v <= unicode.MaxRune {
			return v, 10
		}
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

func hex(t []byte, from, to int) (rune, bool) { return digits(t, from, to, 16) }

func digits(t []byte, from, to, base int) (rune, bool) {
	if len(t) < to || from >= to {
		return 0, false
	}
	v, err := strconv.ParseInt(string(t[from:to]), base, 32)
	return rune(v), err == nil && t[from] != '+' && t[from] != '-'
}

// span is a part of a text.
type span struct{ from, to int }

// hidden returns the parts of a text in which secrets stand in another form than formsOf has. plain are
// the secrets, as they are and encoded as a whole. cut: the text was cut off, and may end with the
// beginning of one.
func hidden(text string, plain []string, cut bool) []span {
	return search(text, plain, cut, nestings)
}

func search(text string, plain []string, cut bool, depth int) []span {
	found := inBase64(text, plain, cut, depth)
	d, ok := decode(text)
	if !ok {
		return found
	}
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
		for _, t := range [...]string{inText, end} {
			if n := beginning(t, s); cut && n > 0 {
				found = append(found, span{int(d.from[len(t)-n]), len(text)})
			}
		}
	}
	for _, t := range [...]string{inText, end} {
		for _, p := range inBase64(t, plain, cut, depth) {
			found = append(found, span{int(d.from[p.from]), int(d.to[p.to-1])})
		}
		if !cut {
			break
		}
	}
	return found
}

// beginning returns how many bytes of the beginning of a secret stand at the end of a text, or 0 for too few.
func beginning(text, secret string) int {
	for n := min(len(secret)-1, len(text)); n >= shortestValue; n-- {
		if strings.HasSuffix(text, secret[:n]) {
			return n
		}
	}
	return 0
}

// inBase64 returns the runs of base64 that hold a secret among other text, such as a whole header. A run
// may be broken into lines.
func inBase64(text string, plain []string, cut bool, depth int) []span {
	var found []span
	for i := 0; i < len(text); i++ {
		if !base64Byte(text[i]) {
			continue
		}
		end, breaks := i, 0
		for end+breaks < len(text) && (base64Byte(text[end+breaks]) || text[end+breaks] == '\n' || text[end+breaks] == '\r') {
			if breaks++; base64Byte(text[end+breaks-1]) {
				end, breaks = end+breaks, 0
			}
		}
		if end-i >= shortestRun && runHolds(text[i:end], plain, cut && end+breaks == len(text), depth) {
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

var toStandard = strings.NewReplacer("-", "+", "_", "/", "\n", "", "\r", "")

// runHolds reports whether a run of base64, from one of its first four characters on, holds a secret.
func runHolds(run string, plain []string, cut bool, depth int) bool {
	run = toStandard.Replace(run)
	for skip := range min(4, len(run)) {
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
		if slices.ContainsFunc(plain, func(s string) bool {
			return len(s) >= shortestValue && strings.Contains(inRun, s) || cut && beginning(inRun, s) > 0
		}) {
			return true
		}
		if depth > 0 && utf8.ValidString(inRun) && len(search(inRun, plain, cut, depth-1)) > 0 {
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
