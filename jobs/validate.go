package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Limits bound the jobs that a client accepts. Zero fields take their defaults; NewClient
// refuses negative ones.
type Limits struct {
	// MaxPayloadBytes bounds a payload. Default 262144.
	MaxPayloadBytes int
	// RetryMaxRetries bounds RetryPolicy.MaxRetries. Default 10.
	RetryMaxRetries int
	// RetryMaxDelay bounds RetryPolicy.MaxDelay. Default one hour.
	RetryMaxDelay time.Duration
}

func (l Limits) withDefaults() Limits {
	l.MaxPayloadBytes = cmp.Or(l.MaxPayloadBytes, 262144)
	l.RetryMaxRetries = cmp.Or(l.RetryMaxRetries, 10)
	l.RetryMaxDelay = cmp.Or(l.RetryMaxDelay, time.Hour)
	return l
}

func (l Limits) validate(bad func(field, format string, args ...any)) {
	if l.MaxPayloadBytes < 0 {
		bad("limits.MaxPayloadBytes", "must not be negative, is %d", l.MaxPayloadBytes)
	}
	if l.RetryMaxRetries < 0 {
		bad("limits.RetryMaxRetries", "must not be negative, is %d", l.RetryMaxRetries)
	}
	if l.RetryMaxDelay < 0 {
		bad("limits.RetryMaxDelay", "must not be negative, is %s", l.RetryMaxDelay)
	}
}

var (
	namePattern        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)
	destinationPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

const nameRule = "must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit"

const destinationRule = "%q must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit"

// FieldError is a problem of one field of a job.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// ValidationError lists all problems of a job, sorted by field. It matches ErrInvalid.
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

// mostOfField bounds the errors about one field, which may have many parts. One job can have
// about 50 in total.
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

// Validate checks the whole spec, and then runs the checks, which are usually the ones given to WithCheck. It returns nil
// or a *ValidationError.
func (s *Spec) Validate(l Limits, checks ...func(*Spec) []FieldError) error {
	if s == nil {
		return &ValidationError{Fields: []FieldError{{Field: "job", Message: "is nil; make one with New"}}}
	}
	l = l.withDefaults()
	var errs fieldErrors
	bad := errs.add
	if s.err != nil {
		bad("payload", "cannot be encoded as JSON: %v", s.err)
	} else {
		validatePayload(s.Payload, l, bad)
	}
	if s.IfLate != "" && s.IfLate != LateEnqueue && s.IfLate != LateReject {
		bad("if_late", "is %q: want enqueue or reject", clip(string(s.IfLate)))
	}
	if s.nilOption {
		bad("options", "one of them is nil")
	}
	sound := len(errs.fields) == 0
	switch {
	case s.Destination == "":
		bad("destination", "is missing; name one of your destinations")
	case !ValidDestination(s.Destination):
		bad("destination", destinationRule, clip(s.Destination))
	}
	if s.ID != "" && !ValidName(s.ID) {
		bad("id", "%q %s", clip(s.ID), nameRule)
	}
	if s.Owner != "" && !ValidName(s.Owner) {
		bad("owner", "%q %s", clip(s.Owner), nameRule)
	}
	if s.Key != "" && !ValidName(s.Key) {
		bad("key", "%q %s", clip(s.Key), nameRule)
	}
	if s.Replace != "" && !ValidName(s.Replace) {
		bad("replace", "%q %s", clip(s.Replace), nameRule)
	}
	s.validateReplace(bad)
	validateLabels(s.Labels, bad)
	for field, target := range map[string]string{"on_success": s.OnSuccess, "on_failure": s.OnFailure} {
		if target != "" && CallbackHost(target) == "" {
			bad(field, "is not a URL of a callback: http:// or https://, up to %d bytes", maxCallbackURL)
		}
	}
	switch s.Priority {
	case "", PriorityHigh, PriorityDefault, PriorityLow:
	default:
		bad("priority", "%q is none of high, default, low", clip(string(s.Priority)))
	}
	switch {
	case s.Order != "" && s.Order != OrderKey && s.Order != OrderNone:
		bad("order", "%q is neither key nor none", clip(string(s.Order)))
	case s.Order == OrderKey && s.Key == "":
		bad("order", "is key, but the job has no key; give it one, or leave the order out")
	}
	if s.MaxReschedules != nil && *s.MaxReschedules < 0 {
		bad("max_reschedules", "must not be negative; leave it out for no limit")
	}
	if c := s.Cost; c != nil && (*c < 1 || *c > MaxCost) {
		bad("cost", "must be from 1 to %d, is %d", MaxCost, *c)
	}
	if len(s.Costs) > mostCosts {
		bad("costs", "must name up to %d units, has %d", mostCosts, len(s.Costs))
	} else {
		for _, unit := range slices.Sorted(maps.Keys(s.Costs)) {
			if c := s.Costs[unit]; !unitForm.MatchString(unit) {
				bad("costs", "%q is not a unit: want 1 to 63 of a-z, 0-9 and '-', not starting with '-'", clip(unit))
			} else if c < 1 || c > MaxCosts {
				bad("costs."+unit, "must be from 1 to %d, is %d", MaxCosts, c)
			}
		}
	}
	if s.Delay < 0 {
		bad("delay", "must not be negative")
	}
	if s.Delay > store.Longest {
		bad("delay", "must not be more than 100 years")
	}
	for field, at := range map[string]time.Time{"at": s.At, "expires_at": s.ExpiresAt} {
		if !at.Before(store.EndOfTime) {
			bad(field, "must be before the year 10000")
		}
	}
	if s.TTL != nil && *s.TTL > store.Longest {
		bad("ttl", "must not be more than 100 years; leave it out for a job that never expires")
	}
	if s.Delay != 0 && !s.At.IsZero() {
		bad("delay", "give either a delay or a time, not both")
	}
	if s.TTL != nil && *s.TTL > 0 && s.Delay >= *s.TTL {
		bad("delay", "must be less than the ttl of %s: the job would expire before it may start", *s.TTL)
	}
	if s.TTL != nil && *s.TTL < 0 {
		bad("ttl", "must not be negative; 0 expires the job at once")
	}
	if s.TTL != nil && !s.ExpiresAt.IsZero() {
		bad("ttl", "give either a ttl or expires_at, not both")
	}
	if s.Batch != "" && !ValidName(s.Batch) {
		bad("batch", "%q %s", clip(s.Batch), nameRule)
	}
	s.validateParents(bad)
	if s.Retry != nil {
		policy := s.Retry.withDefaults()
		policy.validate(l, bad)
	}
	s.Request.validate(bad)
	for _, check := range checks {
		if check == nil {
			continue
		}
		for _, found := range check(s) {
			if sound || found.Field != "payload" {
				bad(found.Field, "%s", found.Message)
			}
		}
	}
	return errs.err()
}

// maxParents bounds the parents of one job.
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

// quoting is the advice for a payload that is plain text, or whose quotes a shell has
// removed.
const quoting = `a payload is JSON, with names and texts in double quotes, such as {"title":"Sunset"} or "Sunset"; in a shell put single quotes around it`

func jsonProblem(p []byte) string {
	var v any
	if err := json.Unmarshal(p, &v); err != nil {
		return err.Error()
	}
	return "unknown problem"
}

// clip shortens a quotation of the input.
func clip(s string) string { return text.Cut(s, 81) }

// maxCallbackURL bounds OnSuccess and OnFailure, in bytes.
const maxCallbackURL = 1000

// maxCallbackHost leaves room for a destination in the key of a callback.
const maxCallbackHost = 64

// CallbackHost returns the host of the URL of a job's callback, with its port if it names one; "" if the URL is
// not valid.
func CallbackHost(target string) string {
	u, err := url.Parse(target)
	if err != nil || len(target) > maxCallbackURL || !utf8.ValidString(target) || u.Scheme != "http" && u.Scheme != "https" || len(u.Host) > maxCallbackHost || !ValidName(u.Host) {
		return ""
	}
	return strings.ToLower(u.Host)
}

// mostCosts is how many units a job may have costs in.
const mostCosts = 8

var unitForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
