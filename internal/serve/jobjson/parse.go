// Package jobjson parses job specs from JSON, for the command line and the HTTP API: one object in
// the form in which a job is printed, or many, one a line.
package jobjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

// SyntaxError is returned for data that is not one JSON object.
type SyntaxError struct{ text string }

func (e *SyntaxError) Error() string { return e.text }

// Is makes errors.Is(err, jobs.ErrInvalid) true.
func (e *SyntaxError) Is(target error) bool { return target == jobs.ErrInvalid }

// ErrNotUTF8 is the error of data that is not UTF-8: JSON that contains it would be invalid.
var ErrNotUTF8 error = &SyntaxError{"is not UTF-8, as JSON is"}

// Parse reads one job in the form of the JSON that a job is printed in into spec, whose values are the defaults
// of what the JSON leaves out. What cannot be chosen at an enqueue is passed over. The payload is
// a part of data, which must stay as it is until the job is enqueued.
//
// Errors: [ErrNotUTF8], or another *SyntaxError where data is not a JSON object, else a *jobs.ValidationError that
// names each wrong field, in the order of data; fields of objects by their path, such as retry.max_retries.
func Parse(data []byte, spec *jobs.Spec) error {
	if !utf8.Valid(data) {
		return ErrNotUTF8
	}
	p := parser{spec: spec, seen: make([]bool, len(fields))}
	rest, broken := data, []byte(nil)
	if !json.Valid(data) {
		rest, broken = brokenPayload(data)
	}
	if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] != '{' {
		return syntaxProblem(data)
	}
	eachField(rest, p.set)
	if broken != nil {
		spec.Payload = broken // [jobs.Spec.Validate] says what is wrong with it
	}
	switch {
	case p.seen[payloadField]:
	case p.reported:
		p.bad("payload", `is missing; "list" leaves payloads out, "get ID -o json" has them`)
	default:
		p.bad("payload", "is missing; give JSON, for instance {} or null")
	}
	if len(p.wrong) > 0 {
		return &jobs.ValidationError{Fields: p.wrong}
	}
	return nil
}

// brokenPayload takes the payload out of an object that is valid JSON but for it; of other data it returns nil.
func brokenPayload(data []byte) (rest, payload []byte) {
	before, payload, found := bytes.Cut(data, []byte(`"payload":`))
	payload = next(payload)
	end := valueEnd(payload)
	rest = slices.Concat(before, []byte(`"payload":null`), payload[end:])
	if !found || end == 0 || !json.Valid(rest) {
		return nil, nil
	}
	return rest, payload[:end]
}

// eachField calls visit with the name and value of each field of a valid object, in order.
func eachField(object []byte, visit func(name string, value []byte)) {
	for rest := next(object[1:]); rest[0] != '}'; rest = next(rest) {
		end := valueEnd(rest)
		name := unquote(rest[:end])
		rest = next(rest[end:])
		end = valueEnd(rest)
		visit(name, rest[:end:end])
		rest = rest[end:]
	}
}

// next skips white space, commas and colons of valid JSON.
func next(data []byte) []byte { return bytes.TrimLeft(data, " \t\r\n,:") }

// valueEnd returns the length of the value that valid JSON begins with.
func valueEnd(data []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth < 0 { // of what is around it
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case depth == 0 && strings.IndexByte(" \t\r\n,", c) >= 0:
			return i
		}
	}
	return len(data)
}

// unquote decodes a valid string; most need no decoding.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s)
	return s
}

// Complete adds to an error of [Parse] what [jobs.Spec.Validate] finds wrong with the
// fields that could be read, so that all is said at once. An error that names no
// fields, and nil, are returned as they are.
func Complete(err error, spec *jobs.Spec, limits jobs.Limits) error {
	unread, ok := errors.AsType[*jobs.ValidationError](err)
	if !ok {
		return err
	}
	invalid, ok := errors.AsType[*jobs.ValidationError](spec.Validate(limits, httpjob.Check))
	if !ok {
		return err
	}
	all := slices.Clone(unread.Fields)
	for _, f := range invalid.Fields {
		if len(all) < MostErrors && !slices.ContainsFunc(unread.Fields, func(u jobs.FieldError) bool { return covers(u.Field, f.Field) }) {
			all = append(all, f)
		}
	}
	return &jobs.ValidationError{Fields: all}
}

// covers reports whether an unread field may be the cause of the validation error of another:
// they are the same, or parts of the same object.
func covers(unread, invalid string) bool {
	object := func(field string) string {
		name, _, _ := strings.Cut(field, ".")
		return name
	}
	return object(unread) == object(invalid)
}

// syntaxProblem returns the syntax error of encoding/json, with a hint where the payload is the cause.
func syntaxProblem(data []byte) *SyntaxError {
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole)
	if err == nil {
		return &SyntaxError{`is not a JSON object; write a job such as {"destination":"example","payload":{}}`}
	}
	text := fmt.Sprintf("is not valid JSON: %v", err)
	if _, payload, found := bytes.Cut(data, []byte(`"payload":`)); found {
		dec := json.NewDecoder(bytes.NewReader(payload))
		err := dec.Decode(&whole)
		if after := bytes.TrimSpace(payload[dec.InputOffset():]); err != nil || len(after) > 0 && after[0] != ',' && after[0] != '}' {
			text += "; a payload is JSON, with names and texts in double quotes"
		}
	}
	return &SyntaxError{text}
}

// parser sets the fields of a job.
type parser struct {
	spec     *jobs.Spec
	seen     []bool // by index of fields
	reported bool   // a field was passed over that only Tidegate sets
	wrong    []jobs.FieldError
}

// MostErrors bounds the errors of one job.
const MostErrors = 50

// bad adds a validation error of a field.
func (p *parser) bad(field, text string) {
	if len(p.wrong) < MostErrors {
		p.wrong = append(p.wrong, jobs.FieldError{Field: field, Message: text})
	}
}

// set sets a field of the job.
func (p *parser) set(name string, value []byte) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	switch {
	case i < 0 && reported[name]:
		p.reported = true
		return
	case len(p.wrong) >= MostErrors:
		return
	case i < 0:
		p.bad(text.Cut(name, longestQuote), noSuchField(name))
		return
	case p.seen[i]:
		p.bad(name, "is given twice")
		return
	}
	p.seen[i] = true
	err := fields[i].set(value, p.spec)
	if part, inside := errors.AsType[*partError](err); inside {
		p.bad(name+"."+part.field, part.text)
	} else if err != nil {
		p.bad(name, err.Error())
	}
}

// Elements takes an array apart, into parts of data. ok is false if it has more elements than most. The error comes
// from encoding/json.
func Elements(data []byte, most int) (elements [][]byte, ok bool, err error) {
	if !json.Valid(data) {
		var anything any
		return nil, true, json.Unmarshal(data, &anything)
	}
	for rest := next(bytes.TrimSpace(data)[1:]); rest[0] != ']'; rest = next(rest) {
		if len(elements) == most {
			return nil, false, nil
		}
		end := valueEnd(rest)
		elements = append(elements, rest[:end:end])
		rest = rest[end:]
	}
	return elements, true, nil
}
