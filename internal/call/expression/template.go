package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Template is text with expressions in {{ }}. Goroutines may share it.
type Template struct {
	parts []part
}

// part is an expression, or text if that is nil.
type part struct {
	text    string
	program *Program
}

// CompileTemplate compiles a text with expressions in {{ }}. The error is an *Error, whose
// position is that in the text.
func CompileTemplate(text string, o Options) (*Template, error) {
	t := &Template{}
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "{{")
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !found {
			break
		}
		at := text[:len(text)-len(after)]
		length := closing(after)
		if length < 0 {
			return nil, behind(at, &Error{1, -1, "{{ is not closed by }}"})
		}
		program, err := compiled.get(after[:length], o)
		if err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok {
				e = &Error{1, 1, err.Error()}
			}
			return nil, behind(at, e)
		}
		t.parts = append(t.parts, part{program: program})
		rest = after[length+len("}}"):]
	}
	return t, nil
}

// maxCompiled bounds the expressions that are kept compiled.
const maxCompiled = 1000

// compiled keeps the untrusted expressions of templates: jobs have the same ones again and again, at the
// enqueue and for each call.
var compiled = cache{programs: map[cached]*Program{}}

type cached struct{ options, source string }

type cache struct {
	mu       sync.Mutex
	programs map[cached]*Program
}

// get is Compile, once for an expression unless more than maxCompiled others came in between.
func (c *cache) get(source string, o Options) (*Program, error) {
	if !o.Untrusted {
		return Compile(source, o)
	}
	key := cached{o.key(), source}
	c.mu.Lock()
	p := c.programs[key]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	key.source = strings.Clone(source) // of a text that may be much longer
	p, err := Compile(key.source, o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.programs) >= maxCompiled {
		clear(c.programs)
	}
	c.programs[key] = p
	return p, nil
}

// closing returns where }} ends an expression, outside of quotes; -1 if it does not.
func closing(s string) int {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '}' && strings.HasPrefix(s[i:], "}}"):
			for strings.HasPrefix(s[i+1:], "}}") {
				i++ // the } of a map: {{ {"a": 1} }} without the space
			}
			return i
		}
	}
	return -1
}

// behind moves the position of an error in an expression behind the text before it.
func behind(before string, e *Error) *Error {
	lines := strings.Count(before, "\n")
	out := *e
	if e.Line == 1 {
		out.Column += utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:])
	}
	out.Line += lines
	return &out
}

// Members returns the names that the expressions use of variables of type Members.
func (t *Template) Members() []string {
	var out []string
	for _, p := range t.parts {
		if p.program != nil {
			out = append(out, p.program.Members()...)
		}
	}
	return out
}

// Uses reports whether an expression of the template uses a variable.
func (t *Template) Uses(name string) bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.program != nil && p.program.Uses(name) })
}

// Eval returns the text with the values of its expressions, at most about 256 KiB. Text stands
// as it is, a number in digits, a list or an object as JSON. A value that is missing (null) is
// an error.
func (t *Template) Eval(env map[string]any) (string, error) {
	return t.Fill(func(p *Program) (string, error) {
		v, err := p.Eval(env)
		if err != nil {
			return "", err
		}
		text, err := Text(v)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.Source(), err)
		}
		return text, nil
	})
}

// Only returns the expression of a template that has no text besides it, nil of others.
func (t *Template) Only() *Program {
	if len(t.parts) != 1 {
		return nil
	}
	return t.parts[0].program
}

// Fill is Eval with the text of each expression by a function.
func (t *Template) Fill(value func(*Program) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.program != nil {
			var err error
			if text, err = value(p.program); err != nil {
				return "", err
			}
		}
		if b.Len()+len(text) > memory {
			return "", errTooLong
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

var errTooLong = fmt.Errorf("the text is longer than %d bytes", memory)

// Fits reports whether a value of Eval has at most the given number of bytes as JSON, roughly: a digit, and a
// character that JSON escapes, counts as 1. It stops reading at that number.
func Fits(v any, bytes int) bool { return fits(v, &bytes) }

func fits(v any, left *int) bool {
	*left--
	switch v := v.(type) {
	case string:
		*left -= len(v) + 1
	case []any:
		for i := 0; i < len(v) && *left >= 0; i++ {
			fits(v[i], left)
		}
	case []string:
		for i := 0; i < len(v) && *left >= 0; i++ {
			fits(v[i], left)
		}
	case map[string]any:
		for name, value := range v {
			if *left -= len(name) + 2; !fits(value, left) {
				break
			}
		}
	}
	return *left >= 0
}

// Text writes a value of Eval as text: text as it is, a number in digits, a list or an object
// as JSON. nil, and what has more than about 256 KiB, is an error.
func Text(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("there is no such value")
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case fmt.Stringer: // durations and times
		return v.String(), nil
	}
	if !Fits(v, memory) {
		return "", errTooLong
	}
	out, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("cannot be written as text: %w", err)
	}
	return string(out), nil
}
