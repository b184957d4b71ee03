package jobjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/jobs"
)

// seenFields are the fields read so far.
type seenFields struct {
	id, destination, key, payload, request, priority, retry, maxReschedules, cost, availableAt bool
	batch, after, ttl, expiresAt                                                               bool

	reported bool // one that only Tidegate sets
}

// chosen are the fields that set knows.
var chosen = []string{
	"id", "destination", "key", "payload", "request", "priority", "retry", "max_reschedules", "cost", "available_at",
	"batch", "after", "ttl", "expires_at",
}

// reported are the other fields that get prints.
var reported = func() map[string]bool {
	out := map[string]bool{}
	add := func(t reflect.Type) {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !slices.Contains(chosen, name) {
				out[name] = true
			}
		}
	}
	add(reflect.TypeFor[jobs.Job]())
	// Fields that are added to a printed job.
	out["waiting"], out["redacted"] = true, true
	return out
}()

// noSuchField is the problem of a field that a job does not have.
func noSuchField(name string) string {
	if len(name) <= longestQuote {
		if near := config.Nearest(name, chosen, max(1, len(name)/3)); near != "" {
			return "is not a field of a job to enqueue; did you mean " + near + "?"
		}
	}
	return "is not a field of a job to enqueue; there are " + strings.Join(chosen, ", ")
}

// set sets a field of spec, and adds its validation errors to p. The error is errSyntax.
func (s *seenFields) set(p *parser, name string, value []byte, spec *jobs.Spec) error {
	seen := s.of(name)
	if seen == nil || *seen {
		switch {
		case !json.Valid(value):
			return errSyntax
		case p.full():
		case seen != nil:
			p.bad(name, "is given twice")
		case !reported[name]:
			p.bad(text.Cut(name, longestQuote), noSuchField(name))
		}
		s.reported = s.reported || reported[name]
		return nil
	}
	*seen = true
	var err error
	switch name {
	case "id":
		err = setText(value, &spec.ID)
	case "destination":
		err = setText(value, &spec.Destination)
	case "key":
		err = setText(value, &spec.Key)
	case "priority":
		var text string
		err = setText(value, &text)
		spec.Priority = jobs.Priority(text)
	case "payload":
		spec.Payload = value
	case "request":
		err = setStrict(value, mostRequestBytes, &spec.Request)
	case "retry":
		err = setStrict(value, mostRetryBytes, &spec.Retry)
	case "max_reschedules":
		err = setNumber(value, &spec.MaxReschedules)
	case "cost":
		err = setNumber(value, &spec.Cost)
	case "available_at":
		err = setTime(value, &spec.At)
	case "batch":
		err = setGiven(value, &spec.Batch)
	case "after":
		err = setTexts(value, mostParents, &spec.After)
	case "ttl":
		err = setTTL(value, &spec.TTL)
	case "expires_at":
		err = setTime(value, &spec.ExpiresAt)
	}
	part, inside := errors.AsType[*partError](err)
	switch {
	case errors.Is(err, errSyntax):
		return err
	case inside:
		p.bad(name+"."+part.field, part.text)
	case err != nil:
		p.bad(name, err.Error())
	}
	return nil
}

// of returns the flag of a field, nil for a field that set does not know.
func (s *seenFields) of(name string) *bool {
	switch name {
	case "id":
		return &s.id
	case "destination":
		return &s.destination
	case "key":
		return &s.key
	case "payload":
		return &s.payload
	case "request":
		return &s.request
	case "priority":
		return &s.priority
	case "retry":
		return &s.retry
	case "max_reschedules":
		return &s.maxReschedules
	case "cost":
		return &s.cost
	case "available_at":
		return &s.availableAt
	case "batch":
		return &s.batch
	case "after":
		return &s.after
	case "ttl":
		return &s.ttl
	case "expires_at":
		return &s.expiresAt
	}
	return nil
}

// Bounds of JSON that is decoded into Go values, which take many times its memory. Longer JSON is
// refused.
const (
	mostRequestBytes = 64 << 10
	mostRetryBytes   = 4 << 10
	mostParents      = 1000
)

// partError is a validation error of a field of an object.
type partError struct{ field, text string }

func (e *partError) Error() string { return e.field + ": " + e.text }

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

// setGiven takes a string that replaces a default, unless it is "" or null.
func setGiven(value []byte, into *string) error {
	var text string
	err := setText(value, &text)
	if text != "" {
		*into = text
	}
	return err
}

// setTexts takes a list of at most most strings, or null for none.
func setTexts(value []byte, most int, into *[]string) error {
	if value[0] == '[' {
		if _, ok := Elements(value, most); !ok {
			return bounded(value, "has more than %d ids, which is the most that is accepted", most)
		}
	}
	var texts []string
	if err := json.Unmarshal(value, &texts); err != nil {
		return wrongKind(value, "a list of strings")
	}
	if len(texts) > 0 {
		*into = texts
	}
	return nil
}

// setTTL takes a duration: a string such as "7d", a number of seconds, or null
// for none.
func setTTL(value []byte, into **time.Duration) error {
	if string(value) == "null" {
		return nil
	}
	var ttl time.Duration
	var err error
	if value[0] == '"' {
		var text string
		if text, err = unquote(value); err == nil {
			ttl, err = config.ParseDuration(text)
		}
	} else {
		ttl, err = secondsOf(value)
	}
	if err == nil {
		*into = &ttl
	}
	return err
}

// secondsOf reads a number of seconds.
func secondsOf(value []byte) (time.Duration, error) {
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !json.Valid(value) {
		return 0, wrongKind(value, `a duration such as "7d", or a number of seconds`)
	}
	const most = math.MaxInt64 / int64(time.Second)
	if math.Abs(n) >= float64(most) {
		return 0, errors.New("is too long")
	}
	return time.Duration(n * float64(time.Second)), nil
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
	at, err := ParseTime(text)
	*into = at
	return err
}

// bounded is the error of a value that is too large, unless it is not valid JSON.
func bounded(value []byte, format string, args ...any) error {
	if !json.Valid(value) {
		return errSyntax
	}
	return fmt.Errorf(format, args...)
}

// setStrict decodes an object of at most most bytes, or null for none, and refuses
// fields that it does not know.
func setStrict(value []byte, most int, into any) error {
	if string(value) == "null" {
		return nil
	}
	if value[0] != '{' {
		return wrongKind(value, "an object")
	}
	if len(value) > most {
		return bounded(value, "has %d bytes, at most %d are accepted", len(value), most)
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if !json.Valid(value) {
			return errSyntax
		}
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return &partError{wrong.Field, fmt.Sprintf("%s found where %s is expected", text.Cut(wrong.Value, longestQuote), kindWord(wrong.Type))}
		}
		problem := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "retry: "), "json: ")
		if quoted, ok := strings.CutPrefix(problem, "unknown field "); ok {
			if field, err := strconv.Unquote(quoted); err == nil {
				return &partError{text.Cut(field, longestQuote), "is not known"}
			}
		}
		return errors.New(problem)
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

// wrongKind returns the expected kind, unless the value is not valid JSON.
func wrongKind(value []byte, want string) error {
	return bounded(value, "must be %s", want)
}

// ParseTime reads an instant in RFC 3339; the error is worded for users.
func ParseTime(s string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z", text.Cut(s, longestQuote))
	}
	return at, nil
}

// longestQuote is how much of the input a message repeats, in characters.
const longestQuote = 40
