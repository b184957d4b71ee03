package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// parseJobLine reads one job in the form of the JSON that get prints, reduced to
// what may be chosen at an enqueue. The payload is a part of line, byte for byte;
// whether it is JSON is checked with the job's other values, by Spec.Validate.
//
// It goes over the line once and by hand: encoding/json would go over it three
// times, which is most of the work of a large file.
func parseJobLine(line []byte, spec *jobs.Spec) error {
	p := lineParser{line: line}
	if err := p.object(spec); err != nil {
		if errors.Is(err, errSyntax) {
			return syntaxProblem(line)
		}
		return err
	}
	return nil
}

// errSyntax says that the line is not JSON; syntaxProblem says where.
var errSyntax = errors.New("syntax")

// syntaxProblem describes what is wrong in the words of encoding/json.
func syntaxProblem(line []byte) error {
	var anything any
	if err := json.Unmarshal(line, &anything); err != nil {
		return fmt.Errorf("is not valid JSON: %w", err)
	}
	return errors.New(`is not a JSON object; write a job such as {"destination":"example","payload":{}}`)
}

// lineParser is a position in a line.
type lineParser struct {
	line []byte
	i    int
}

// object reads the whole line.
func (p *lineParser) object(spec *jobs.Spec) error {
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
		p.space()
		value := p.value()
		if value == nil {
			return errSyntax
		}
		if err := seen.set(name, value, spec); err != nil {
			return err
		}
		switch {
		case p.token(','):
		case p.token('}'):
			more = false
		default:
			return errSyntax
		}
	}
	if p.space(); p.i != len(p.line) {
		return errSyntax
	}
	if !seen.payload {
		return errors.New("payload: is missing; give JSON, for instance {} or null")
	}
	return nil
}

func (p *lineParser) space() {
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
func (p *lineParser) token(c byte) bool {
	p.space()
	if p.i < len(p.line) && p.line[p.i] == c {
		p.i++
		return true
	}
	return false
}

// text takes a string.
func (p *lineParser) text() (string, error) {
	start := p.i
	if !p.skipString() {
		return "", errSyntax
	}
	return unquote(p.line[start:p.i])
}

// value takes a value of any kind and returns it as it is written; nil where
// none can be. Only its end is looked for: it may not be valid.
func (p *lineParser) value() []byte {
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
func (p *lineParser) skipWord() {
	for p.i < len(p.line) {
		switch p.line[p.i] {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			return
		}
		p.i++
	}
}

func (p *lineParser) skipNested() bool {
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

func (p *lineParser) skipString() bool {
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

// seenFields are the fields that a line has had so far.
type seenFields struct {
	id, destination, key, payload, request, priority, retry, maxReschedules, availableAt bool
}

// set puts the value of a field into spec.
func (s *seenFields) set(name string, value []byte, spec *jobs.Spec) error {
	var err error
	var seen *bool
	switch name {
	case "id":
		seen, err = &s.id, setText(value, &spec.ID)
	case "destination":
		seen, err = &s.destination, setText(value, &spec.Destination)
	case "key":
		seen, err = &s.key, setText(value, &spec.Key)
	case "priority":
		var text string
		seen, err = &s.priority, setText(value, &text)
		spec.Priority = jobs.Priority(text)
	case "payload":
		seen, spec.Payload = &s.payload, value
	case "request":
		seen, err = &s.request, setStrict(value, &spec.Request)
	case "retry":
		seen, err = &s.retry, setStrict(value, &spec.Retry)
	case "max_reschedules":
		seen, err = &s.maxReschedules, setNumber(value, &spec.MaxReschedules)
	case "available_at":
		seen, err = &s.availableAt, setTime(value, &spec.At)
	case "ttl", "expires_at", "batch", "after":
		return fmt.Errorf("%s: is not supported by this version", name)
	default:
		return fmt.Errorf("%s: is no field of a job to enqueue; there are id, destination, key, payload, request, priority, retry, max_reschedules, available_at", clip(name, 40))
	}
	switch {
	case errors.Is(err, errSyntax):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case *seen:
		return fmt.Errorf("%s: is given twice", name)
	}
	*seen = true
	return nil
}

// setText takes a string, or null for none.
func setText(value []byte, into *string) error {
	if string(value) == "null" {
		return nil
	}
	if value[0] != '"' {
		return wrongKind(value, "a string")
	}
	text, err := unquote(value)
	*into = text
	return err
}

// setNumber takes a whole number, or null for none.
func setNumber(value []byte, into **int) error {
	if string(value) == "null" {
		return nil
	}
	n, err := strconv.Atoi(string(value))
	if err != nil || !json.Valid(value) {
		return wrongKind(value, "a whole number")
	}
	*into = &n
	return nil
}

func setTime(value []byte, into *time.Time) error {
	var text string
	if err := setText(value, &text); err != nil || text == "" {
		return err
	}
	at, err := parseTime(text)
	*into = at
	return err
}

// setStrict decodes an object, or null for none, and refuses fields that it does
// not know.
func setStrict(value []byte, into any) error {
	if string(value) == "null" {
		return nil
	}
	if value[0] != '{' {
		return wrongKind(value, "an object")
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if !json.Valid(value) {
			return errSyntax
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("%s: %s found where %s is expected", wrong.Field, wrong.Value, kindWord(wrong.Type))
		}
		return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "retry: "), "json: "))
	}
	return nil
}

// kindWord names what JSON calls a Go type.
func kindWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	default:
		return "an object"
	}
}

// wrongKind says what was expected, unless the value is none at all.
func wrongKind(value []byte, want string) error {
	if !json.Valid(value) {
		return errSyntax
	}
	return errors.New("must be " + want)
}

// parseTime reads an instant.
func parseTime(s string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time; write it in RFC 3339, such as 2026-01-31T14:35:00Z", clip(s, 40))
	}
	return at, nil
}
