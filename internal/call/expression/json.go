package expression

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Bounds of a JSON text.
const (
	// MaxJSON is its longest length, in bytes.
	MaxJSON = 256 << 10
	// MaxDepth is how deep its lists and objects may be nested.
	MaxDepth = 64
	// MaxValues is how many values and names it may hold.
	MaxValues = 32 << 10
)

// JSON reads a JSON text from outside for Eval: objects as map[string]any, lists as []any,
// numbers as int, as float64 if they have a fraction or an exponent, and as text if they are
// larger than an int, which keeps identifiers exact. A text beyond the bounds is an error and
// is not decoded.
func JSON(data []byte) (any, error) {
	if err := bounds(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("is not JSON: text follows the value")
	}
	return numbers(v), nil
}

// bounds checks a text, which need not be JSON, before it is decoded.
func bounds(data []byte) error {
	if len(data) > MaxJSON {
		return fmt.Errorf("is longer than %d bytes", MaxJSON)
	}
	depth, values, quoted := 0, 1, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return fmt.Errorf("is nested deeper than %d", MaxDepth)
			}
			values++
		case c == ']' || c == '}':
			depth--
		case c == ',' || c == ':':
			values++
		}
	}
	if values > MaxValues {
		return fmt.Errorf("holds more than %d values", MaxValues)
	}
	return nil
}

// numbers replaces the json.Number of a value by Go's numbers.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if bytes.ContainsAny([]byte(v), ".eE") {
			if f, err := v.Float64(); err == nil {
				return f
			}
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	}
	return v
}
