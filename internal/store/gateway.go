package store

import "strings"

// MostGatewayBody is how much of a response's body a job of the gateway keeps.
const MostGatewayBody = 1 << 20

// GatewayBody is the FieldResponseBody of a job of the gateway: the content type and the body as it came.
// Others begin with no control character. cut: the body is not the whole one.
func GatewayBody(contentType, body string, cut bool) string {
	mark := "\x00 "
	if cut {
		mark = "\x00!"
	}
	return mark + contentType + "\n" + body
}

// ParseGatewayBody is the inverse; ok is false for a body of another job.
func ParseGatewayBody(field string) (contentType, body string, cut, ok bool) {
	field, ok = strings.CutPrefix(field, "\x00")
	if !ok {
		return "", field, false, false
	}
	if field, cut = strings.CutPrefix(field, "!"); !cut {
		field = strings.TrimPrefix(field, " ")
	}
	contentType, body, _ = strings.Cut(field, "\n")
	return contentType, body, cut, true
}
