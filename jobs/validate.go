package jobs

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/tidegate/tidegate/internal/record"
)

// Limits bound what a client accepts. Zero fields take their defaults.
type Limits struct {
	// MaxPayloadBytes bounds a payload. Default 262144.
	MaxPayloadBytes int
	// RetryMaxRetries bounds RetryPolicy.MaxRetries. Default 10.
	RetryMaxRetries int
	// RetryMaxDelay bounds RetryPolicy.MaxDelaySecs. Default one hour.
	RetryMaxDelay time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.MaxPayloadBytes == 0 {
		l.MaxPayloadBytes = 262144
	}
	if l.RetryMaxRetries == 0 {
		l.RetryMaxRetries = 10
	}
	if l.RetryMaxDelay == 0 {
		l.RetryMaxDelay = time.Hour
	}
	return l
}

// Bounds of the HTTP part of a job.
const (
	maxPathBytes   = 2048
	maxQueryBytes  = 4096
	maxHeaderBytes = 8192 // names and values of all headers together
)

var (
	namePattern        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
	destinationPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

// FieldError says what is wrong with one field of a job.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// ValidationError lists everything that is wrong with a job, sorted by field.
// It matches ErrInvalid.
type ValidationError struct {
	Fields []FieldError
}

func (e *ValidationError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + ": " + f.Message
	}
	return strings.Join(parts, "; ")
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// fieldErrors collects errors in their order.
type fieldErrors struct {
	fields []FieldError
	more   map[string]int // by field: those beyond mostOfField
}

// mostOfField bounds the errors about one field, which may have many parts. What one job
// can have of them all together is about 50.
const mostOfField = 10

func (e *fieldErrors) add(field, format string, args ...any) {
	n := 0
	for _, f := range e.fields {
		if f.Field == field {
			n++
		}
	}
	if n < mostOfField {
		e.fields = append(e.fields, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
		return
	}
	if e.more == nil {
		e.more = map[string]int{}
	}
	e.more[field]++
}

// err returns nil or a *ValidationError, sorted by field.
func (e *fieldErrors) err() error {
	if len(e.fields) == 0 {
		return nil
	}
	for field, n := range e.more {
		e.fields = append(e.fields, FieldError{Field: field, Message: fmt.Sprintf("has more errors that are not listed: %d", n)})
	}
	sort.SliceStable(e.fields, func(i, j int) bool { return e.fields[i].Field < e.fields[j].Field })
	return &ValidationError{Fields: e.fields}
}

// ValidName reports whether s may be an id, a key or a batch.
func ValidName(s string) bool { return namePattern.MatchString(s) }

// ValidDestination reports whether s may be the name of a destination.
func ValidDestination(s string) bool { return destinationPattern.MatchString(s) }

// Validate checks the whole description and returns nil or a *ValidationError.
func (s *Spec) Validate(l Limits) error {
	l = l.withDefaults()
	var errs fieldErrors
	bad := errs.add
	if s.err != nil {
		bad("payload", "cannot be encoded as JSON: %v", s.err)
	} else {
		validatePayload(s.Payload, l, bad)
	}
	switch {
	case s.Destination == "":
		bad("destination", "is missing; name one of your destinations")
	case !ValidDestination(s.Destination):
		bad("destination", "%q must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit", clip(s.Destination))
	}
	const rule = "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit"
	if s.ID != "" && !ValidName(s.ID) {
		bad("id", "%q %s", clip(s.ID), rule)
	}
	if s.Owner != "" && !ValidName(s.Owner) {
		bad("owner", "%q %s", clip(s.Owner), rule)
	}
	if s.Key != "" && !ValidName(s.Key) {
		bad("key", "%q %s", clip(s.Key), rule)
	}
	switch s.Priority {
	case "", PriorityHigh, PriorityDefault, PriorityLow:
	default:
		bad("priority", "%q is none of high, default, low", clip(string(s.Priority)))
	}
	if s.MaxReschedules != nil && *s.MaxReschedules < 0 {
		bad("max_reschedules", "must not be negative; leave it out for no limit")
	}
	if s.Delay < 0 {
		bad("delay", "must not be negative")
	}
	if s.Delay > record.Longest {
		bad("delay", "must not be more than 100 years")
	}
	for field, at := range map[string]time.Time{"at": s.At, "expires_at": s.ExpiresAt} {
		if !at.Before(record.EndOfTime) {
			bad(field, "must be before the year 10000")
		}
	}
	if s.TTL != nil && *s.TTL > record.Longest {
		bad("ttl", "must not be more than 100 years; leave it out for a job that never expires")
	}
	if s.Delay != 0 && !s.At.IsZero() {
		bad("delay", "give either a delay or a time, not both")
	}
	if s.TTL != nil && *s.TTL < 0 {
		bad("ttl", "must not be negative; 0 expires the job at once")
	}
	if s.TTL != nil && !s.ExpiresAt.IsZero() {
		bad("ttl", "give either a ttl or expires_at, not both")
	}
	if s.Batch != "" && !ValidName(s.Batch) {
		bad("batch", "%q %s", clip(s.Batch), rule)
	}
	s.validateParents(bad)
	if s.Retry != nil {
		s.Retry.validate(l, bad)
	}
	s.Request.validate(bad)
	return errs.err()
}

// maxParents bounds what one job can wait for.
const maxParents = 1000

func (s *Spec) validateParents(bad func(string, string, ...any)) {
	if len(s.After) > maxParents {
		bad("after", "has %d ids, at most %d are accepted", len(s.After), maxParents)
		return
	}
	for _, id := range s.After {
		switch {
		case !ValidName(id):
			bad("after", "%q cannot be the id of a job", clip(id))
		case id == s.ID:
			bad("after", "a job cannot wait for itself")
		}
	}
}

func validatePayload(p []byte, l Limits, bad func(string, string, ...any)) {
	switch {
	case len(p) == 0:
		bad("payload", "is empty; JSON is expected, for instance {} or null")
	case len(p) > l.MaxPayloadBytes:
		bad("payload", "has %d bytes, at most %d are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference", len(p), l.MaxPayloadBytes)
	case !json.Valid(p):
		bad("payload", "is not valid JSON: %s; %s", jsonProblem(p), quoting)
	}
}

// quoting is what those miss who give a text as a payload, or have a shell take the
// quotes off.
const quoting = `a payload is JSON, with names and texts in double quotes, such as {"title":"Sunset"} or "Sunset"; in a shell put single quotes around it`

func jsonProblem(p []byte) string {
	var v any
	if err := json.Unmarshal(p, &v); err != nil {
		return err.Error()
	}
	return "unknown problem"
}

func (r *Request) validate(bad func(string, string, ...any)) {
	if problem := PathProblem(r.Path); problem != "" {
		bad("request.path", "%s", problem)
	}
	switch {
	case len(r.Query) > maxQueryBytes:
		bad("request.query", "has %d bytes, at most %d are accepted", len(r.Query), maxQueryBytes)
	case !utf8.ValidString(r.Query):
		// asynq's encoding holds UTF-8 only: it could not read such a job.
		bad("request.query", "is not valid UTF-8; encode it, for instance a=b&c=d%%20e")
	case strings.HasPrefix(r.Query, "?"):
		bad("request.query", "must not start with a question mark")
	default:
		if _, err := url.ParseQuery(r.Query); err != nil || strings.ContainsAny(r.Query, "#\r\n \x00") {
			bad("request.query", "is no URL query; encode it, for instance a=b&c=d%%20e")
		}
	}
	total := 0
	names := make([]string, 0, len(r.Headers))
	for name := range r.Headers {
		names = append(names, name)
	}
	sort.Strings(names)
	spelled := map[string]string{}
	for _, name := range names {
		value := r.Headers[name]
		total += len(name) + len(value)
		other, again := spelled[strings.ToLower(name)]
		spelled[strings.ToLower(name)] = name
		switch {
		case again && httpguts.ValidHeaderFieldName(name):
			bad("request.headers", "%s and %s are the same header; give it once", clip(other), clip(name))
		case !httpguts.ValidHeaderFieldName(name):
			bad("request.headers", "%q is no header name", clip(name))
		case !httpguts.ValidHeaderFieldValue(value) || !utf8.ValidString(value):
			bad("request.headers", "the value of %s has characters that a header must not have (line breaks?)", clip(name))
		case DeniedHeader(name):
			bad("request.headers", "%s is set by Tidegate or by the connection and cannot be set by a job", name)
		}
	}
	if total > maxHeaderBytes {
		bad("request.headers", "have %d bytes together, at most %d are accepted", total, maxHeaderBytes)
	}
}

// PathProblem says what is wrong with the path of a job, or "". A path is
// appended to the destination's URL and must stay below it.
func PathProblem(path string) string {
	if path == "" {
		return ""
	}
	if len(path) > maxPathBytes {
		return fmt.Sprintf("has %d bytes, at most %d are accepted", len(path), maxPathBytes)
	}
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return "must start with exactly one slash; it is appended to the destination's URL"
	}
	if !utf8.ValidString(path) {
		// asynq's encoding holds UTF-8 only: it could not read such a job.
		return "is not valid UTF-8; encode it (%C3%A9)"
	}
	if strings.ContainsAny(path, "?#\\") {
		return "must not contain ?, # or a backslash; a query goes into request.query"
	}
	for _, r := range path {
		if r <= ' ' || r == 0x7f {
			return "must not contain spaces or control characters; encode them (%20)"
		}
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return "has a malformed percent encoding"
	}
	for _, segment := range strings.FieldsFunc(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return "must not contain . or .. as a segment, encoded or not"
		}
	}
	for _, r := range decoded {
		if r < ' ' || r == 0x7f {
			return "must not contain control characters, encoded or not"
		}
	}
	return ""
}

// deniedHeaders are set by Tidegate, by the HTTP client or by the connection
// (RFC 9110, section 7.6.1).
var deniedHeaders = map[string]bool{
	"authorization": true, "host": true, "idempotency-key": true, "content-length": true,
	"transfer-encoding": true, "connection": true, "keep-alive": true, "proxy-authenticate": true,
	"proxy-authorization": true, "proxy-connection": true, "te": true, "trailer": true,
	"upgrade": true, "expect": true, "accept-encoding": true,
}

// DeniedHeader reports whether a job must not set the header.
func DeniedHeader(name string) bool { return deniedHeaders[strings.ToLower(name)] }

// clip shortens what a message quotes from the input.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
