package store

import "strings"

// MostGatewayBody is how much of a response's body a job of the gateway keeps.
const MostGatewayBody = 1 << 20

// GatewayBody is the FieldResponseBody of a job of the gateway: the content type, the headers as lines "Name: value",
// an empty line, and the body as it came. Other bodies begin with no control character. cut: the body is not the
// whole one.
func GatewayBody(contentType, headers, body string, cut bool) string {
	mark := "\x00 "
	if cut {
		mark = "\x00!"
	}
	return mark + contentType + "\n" + headers + "\n" + body
}

// ParseGatewayBody is the inverse; ok is false for a body of another job.
func ParseGatewayBody(field string) (contentType, headers, body string, cut, ok bool) {
	field, ok = strings.CutPrefix(field, "\x00")
	if !ok {
		return "", "", field, false, false
	}
	if field, cut = strings.CutPrefix(field, "!"); !cut {
		field = strings.TrimPrefix(field, " ")
	}
	contentType, body, _ = strings.Cut(field, "\n")
	for line, rest, more := strings.Cut(body, "\n"); more; line, rest, more = strings.Cut(body, "\n") {
		if body = rest; line == "" {
			break
		}
		headers += line + "\n"
	}
	return contentType, headers, body, cut, true
}
