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

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/jobs"
)

// field is a field of a job that an enqueue may set.
type field struct {
	name string
	set  func(value []byte, s *jobs.Spec) error
}

// payloadField is the index of the payload in fields.
const payloadField = 3

// fields lists the fields that an enqueue may set, in the order of messages.
var fields = []field{
	{"id", func(v []byte, s *jobs.Spec) error { return setText(v, &s.ID) }},
	{"destination", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Destination) }},
	{"key", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Key) }},
	{"payload", func(v []byte, s *jobs.Spec) error { s.Payload = v; return nil }},
	{"request", func(v []byte, s *jobs.Spec) error { return setStrict(v, mostRequestBytes, &s.Request) }},
	{"priority", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Priority) }},
	{"order", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Order) }},
	{"retry", func(v []byte, s *jobs.Spec) error { return setStrict(v, mostRetryBytes, &s.Retry) }},
	{"max_reschedules", func(v []byte, s *jobs.Spec) error { return setNumber(v, &s.MaxReschedules) }},
	{"cost", func(v []byte, s *jobs.Spec) error { return setNumber(v, &s.Cost) }},
	{"costs", func(v []byte, s *jobs.Spec) error { return setStrict(v, mostCostsBytes, &s.Costs) }},
	{"available_at", func(v []byte, s *jobs.Spec) error { return setTime(v, &s.At) }},
	{"delay", func(v []byte, s *jobs.Spec) error { return setPlainDuration(v, &s.Delay) }},
	{"replace", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Replace) }},
	{"replace_max", func(v []byte, s *jobs.Spec) error { return setPlainDuration(v, &s.ReplaceMax) }},
	{"batch", func(v []byte, s *jobs.Spec) error { return setText(v, &s.Batch) }},
	{"labels", func(v []byte, s *jobs.Spec) error { return setStrict(v, mostLabelsBytes, &s.Labels) }},
	{"after", func(v []byte, s *jobs.Spec) error { return setTexts(v, mostParents, &s.After) }},
	{"on_success", func(v []byte, s *jobs.Spec) error { return setText(v, &s.OnSuccess) }},
	{"on_failure", func(v []byte, s *jobs.Spec) error { return setText(v, &s.OnFailure) }},
	{"ttl", func(v []byte, s *jobs.Spec) error { return setDuration(v, &s.TTL) }},
	{"if_late", func(v []byte, s *jobs.Spec) error { return setText(v, &s.IfLate) }},
	{"expires_at", func(v []byte, s *jobs.Spec) error { return setTime(v, &s.ExpiresAt) }},
}

// names returns the names of fields.
func names() []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

// reported are the other fields that get prints.
var reported = func() map[string]bool {
	out := map[string]bool{}
	add := func(t reflect.Type) {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !slices.Contains(names(), name) {
				out[name] = true
			}
		}
	}
	add(reflect.TypeFor[jobs.Job]())
	// Fields that are added to a printed job.
	out["waiting"], out["eta"], out["redacted"] = true, true, true
	return out
}()

// noSuchField is the problem of a field that a job does not have.
func noSuchField(name string) string {
	if len(name) <= longestQuote {
		if near := config.Nearest(name, names(), max(1, len(name)/3)); near != "" {
			return "is not a field of a job to enqueue; did you mean " + near + "?"
		}
	}
	return "is not a field of a job to enqueue; there are " + strings.Join(names(), ", ")
}

// Bounds of JSON that is decoded into Go values, which take many times its memory. Longer JSON is
// refused.
const (
	mostRequestBytes = 64 << 10
	mostRetryBytes   = 4 << 10
	mostCostsBytes   = 4 << 10
	mostLabelsBytes  = 4 << 10
	mostParents      = 1000
)

// partError is a validation error of a field of an object.
type partError struct{ field, text string }

func (e *partError) Error() string { return e.field + ": " + e.text }

// setText takes a string that replaces a default, unless it is "" or null.
func setText[S ~string](value []byte, into *S) error {
	if value[0] != '"' && string(value) != "null" {
		return errors.New("must be a string")
	}
	if value[0] != '"' {
		return nil
	}
	if text := S(unquote(value)); text != "" {
		*into = text
	}
	return nil
}

// setTexts takes a list of at most most strings, or null for none.
func setTexts(value []byte, most int, into *[]string) error {
	if value[0] == '[' {
		if _, ok, _ := Elements(value, most); !ok { // it is not decoded, which would take many times its memory
			return fmt.Errorf("has more than %d ids, which is the most that is accepted", most)
		}
	}
	var texts []string
	switch err := json.Unmarshal(value, &texts); {
	case err != nil:
		return errors.New("must be a list of strings")
	case len(texts) > 0:
		*into = texts
	}
	return nil
}

// setDuration takes a duration: a string such as "7d", a number of seconds, or null for none.
func setDuration(value []byte, into **time.Duration) error {
	const most = math.MaxInt64 / int64(time.Second)
	var given any
	err := json.Unmarshal(value, &given)
	var d time.Duration
	switch given := given.(type) {
	case nil:
		if err == nil {
			return nil
		}
		err = errNoDuration
	case string:
		d, err = config.ParseDuration(given)
	case float64:
		if math.Abs(given) >= float64(most) {
			err = errors.New("is too long")
		}
		d = time.Duration(given * float64(time.Second))
	default:
		err = errNoDuration
	}
	if err == nil {
		*into = &d
	}
	return err
}

// setPlainDuration is setDuration where 0 is the same as none.
func setPlainDuration(value []byte, into *time.Duration) error {
	var d *time.Duration
	err := setDuration(value, &d)
	if d != nil {
		*into = *d
	}
	return err
}

var errNoDuration = errors.New(`must be a duration such as "7d", or a number of seconds`)

// setNumber takes a whole number, or null for none.
func setNumber(value []byte, into **int) error {
	if err := json.Unmarshal(value, into); err != nil {
		*into = nil
		return errors.New("must be a whole number")
	}
	return nil
}

func setTime(value []byte, into *time.Time) error {
	var given string
	if err := setText(value, &given); err != nil || given == "" {
		return err
	}
	at, err := ParseTime(given)
	*into = at
	return err
}

// setStrict decodes an object of at most most bytes, or null for none, and refuses
// fields that it does not know.
func setStrict(value []byte, most int, into any) error {
	switch {
	case string(value) == "null":
		return nil
	case value[0] != '{':
		return errors.New("must be an object")
	case len(value) > most:
		return fmt.Errorf("has %d bytes, at most %d are accepted", len(value), most)
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
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
