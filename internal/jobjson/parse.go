// Package jobjson parses job specs from JSON, for the command line and the HTTP API: one object in
// the form in which a job is printed, or many, one a line.
package jobjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

// SyntaxError is returned for data that is not one JSON object.
type SyntaxError struct{ text string }

func (e *SyntaxError) Error() string { return e.text }

// Is makes errors.Is(err, jobs.ErrInvalid) true.
func (e *SyntaxError) Is(target error) bool { return target == jobs.ErrInvalid }

// ErrNotUTF8 is the error of data that is not UTF-8: JSON that contains it would be invalid.
var ErrNotUTF8 error = &SyntaxError{"is not UTF-8, as JSON is"}

// Parse reads one job in the form of the JSON that a job is printed in into spec,
// whose values are the defaults of what the JSON leaves out. What cannot be chosen
// at an enqueue is passed over. The payload is a part of data, byte for byte, which
// must stay as it is until the job is enqueued; whether it is JSON is checked with
// the job's other values, by [jobs.Spec.Validate].
//
// Errors: [ErrNotUTF8], or another *SyntaxError where data is not a JSON object, else a
// *jobs.ValidationError that names each wrong field, in the order of data, those
// of objects with their path, such as retry.max_retries.
//
// It parses data in one pass: encoding/json would need three, most of the time for a large file.
func Parse(data []byte, spec *jobs.Spec) error {
	if !utf8.Valid(data) {
		return ErrNotUTF8
	}
	p := parser{line: data}
	err := p.object(spec)
	switch {
	case errors.Is(err, errSyntax):
		err := syntaxProblem(data)
		if p.payload {
			err.text += "; a payload is JSON, with names and texts in double quotes"
		}
		return err
	case err != nil:
		return err
	case len(p.wrong) > 0:
		return &jobs.ValidationError{Fields: p.wrong}
	}
	return nil
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

// errSyntax is returned for a line that is not JSON; syntaxProblem says where.
var errSyntax = errors.New("syntax")

// syntaxProblem returns the syntax error of encoding/json.
func syntaxProblem(line []byte) *SyntaxError {
	var whole json.RawMessage
	if err := json.Unmarshal(line, &whole); err != nil {
		return &SyntaxError{fmt.Sprintf("is not valid JSON: %v", err)}
	}
	return &SyntaxError{`is not a JSON object; write a job such as {"destination":"example","payload":{}}`}
}

// parser is a position in a line.
type parser struct {
	line    []byte
	i       int
	payload bool // the position is in the payload, or what follows it is not expected there
	wrong   []jobs.FieldError
}

// MostErrors bounds the errors of one job.
const MostErrors = 50

// bad adds a validation error of a field.
func (p *parser) bad(field, text string) {
	if !p.full() {
		p.wrong = append(p.wrong, jobs.FieldError{Field: field, Message: text})
	}
}

// full reports whether no more errors are noted.
func (p *parser) full() bool { return len(p.wrong) >= MostErrors }

// object reads the whole line.
func (p *parser) object(spec *jobs.Spec) error {
	if !p.token('{') {
		return errSyntax
	}
	var seen seenFields
	for more := !p.token('}'); more; {
		p.space()
		name, err := p.text()
		if err != nil || !p.token(':') {
			return errSyntax
		}
		p.payload = name == "payload"
		p.space()
		value := p.value()
		if value == nil {
			return errSyntax
		}
		if err := seen.set(p, name, value, spec); err != nil {
			return err
		}
		switch {
		case p.token(','):
		case p.token('}'):
			more = false
		default:
			return errSyntax
		}
		p.payload = false
	}
	if p.space(); p.i != len(p.line) {
		return errSyntax
	}
	switch {
	case seen.payload:
	case seen.reported:
		p.bad("payload", `is missing; "list" leaves payloads out, "get ID -o json" has them`)
	default:
		p.bad("payload", "is missing; give JSON, for instance {} or null")
	}
	return nil
}

func (p *parser) space() {
	for p.i < len(p.line) {
		switch p.line[p.i] {
		case ' ', '\t', '\r', '\n':
			p.i++
		default:
			return
		}
	}
}

// token takes one character, with the white space before it, if it comes next.
func (p *parser) token(c byte) bool {
	p.space()
	if p.i < len(p.line) && p.line[p.i] == c {
		p.i++
		return true
	}
	return false
}

// text takes a string.
func (p *parser) text() (string, error) {
	start := p.i
	if !p.skipString() {
		return "", errSyntax
	}
	return unquote(p.line[start:p.i])
}

// value takes a value of any kind and returns it as it is written; nil where
// none can be. Only its end is looked for: it may not be valid.
func (p *parser) value() []byte {
	start := p.i
	if p.i == len(p.line) {
		return nil
	}
	switch p.line[p.i] {
	case '"':
		if !p.skipString() {
			return nil
		}
	case '{', '[':
		if !p.skipNested() {
			return nil
		}
	default:
		p.skipWord()
	}
	if p.i == start {
		return nil
	}
	return p.line[start:p.i:p.i]
}

// skipWord goes over a number, true, false or null.
func (p *parser) skipWord() {
	for p.i < len(p.line) {
		switch p.line[p.i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
		p.i++
	}
}

func (p *parser) skipNested() bool {
	for depth := 0; p.i < len(p.line); {
		switch p.line[p.i] {
		case '"':
			if !p.skipString() {
				return false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		p.i++
		if depth == 0 {
			return true
		}
	}
	return false
}

func (p *parser) skipString() bool {
	if p.i >= len(p.line) || p.line[p.i] != '"' {
		return false
	}
	for p.i++; p.i < len(p.line); p.i++ {
		switch p.line[p.i] {
		case '\\':
			p.i++
		case '"':
			p.i++
			return true
		}
	}
	return false
}

// unquote decodes a string; most need no decoding.
func unquote(quoted []byte) (string, error) {
	for _, c := range quoted[1 : len(quoted)-1] {
		if c == '\\' || c < ' ' || c >= 0x80 {
			var s string
			if err := json.Unmarshal(quoted, &s); err != nil {
				return "", errSyntax
			}
			return s, nil
		}
	}
	return string(quoted[1 : len(quoted)-1]), nil
}

// Elements takes an array that is valid JSON apart, into parts of data. ok is false if
// it has more than most.
func Elements(data []byte, most int) (elements [][]byte, ok bool) {
	p := parser{line: data}
	if !p.token('[') || p.token(']') {
		return nil, true
	}
	for {
		p.space()
		element := p.value()
		if element == nil {
			return elements, true
		}
		if len(elements) == most {
			return nil, false
		}
		elements = append(elements, element)
		if !p.token(',') {
			return elements, true
		}
	}
}
