package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/jobs"
)

// parseJobLine reads one job in the form of the JSON that get prints. What cannot
// be chosen at an enqueue is passed over. The payload is a part of line, byte for
// byte; whether it is JSON is checked with the job's other values, by
// Spec.Validate.
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
	switch {
	case seen.payload:
	case seen.reported:
		return errors.New("payload: is missing; \"list\" leaves payloads out, \"get ID -o json\" has them")
	default:
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
