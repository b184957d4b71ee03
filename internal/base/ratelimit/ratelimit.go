// Package ratelimit has the types that describe a refused call and its limit. Packages jobs and breaker have
// them under their own names, and neither needs the other for them.
package ratelimit

import (
	"encoding/json"
	"fmt"
	"time"
)

// RateLimitedError says that an API refused a call because of its limit.
type RateLimitedError struct {
	// RetryAfter is how long the API asked to wait; 0 if it did not say.
	RetryAfter time.Duration
	// Scope is the scope of the limit.
	Scope Scope
	// Response is the API's answer, nil if unknown.
	Response *Response
	// Err, if any, is what the error is about.
	Err error
}

// Response is the stored answer of an API to a call.
type Response struct {
	Status int    `json:"status" doc:"The HTTP status; 0 where the publisher is no HTTP one." example:"201"`
	Body   string `json:"body" doc:"The body, up to RESPONSE_BODY_BYTES of it, 4096 unless configured; in lists up to 4096." example:"{\"id\":7}"`
	// ContentType, Headers, Raw and Cut are of a job of the gateway, which keeps the body as it came, up to 1 MiB;
	// Cut: there is more, or it broke off. Headers are lines "Name: value".
	ContentType string `json:"content_type,omitempty" doc:"Its Content-Type, of a job of the gateway." example:"application/json"`
	Headers     string `json:"-"`
	Raw         string `json:"-"`
	Cut         bool   `json:"-"`
}

// Error says what happened, and how long the API asked to wait.
func (e *RateLimitedError) Error() string {
	text := "rate limited"
	if e == nil {
		return text
	}
	if e.Scope != ScopeUnknown {
		text += " (" + string(e.Scope) + " limit)"
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", retry after %s", e.RetryAfter)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns Err.
func (e *RateLimitedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Scope is the scope of a limit.
type Scope string

// The scopes of a limit.
const (
	ScopeUnknown Scope = ""
	// ScopeUser is the limit of the caller's credentials.
	ScopeUser Scope = "user"
	// ScopeGlobal is a limit of all callers together.
	ScopeGlobal Scope = "global"
	// ScopeKey is what a caller reports that is believed about its own key alone.
	ScopeKey Scope = "key"
)

// Budget is the remaining budget of a limit.
type Budget struct {
	Remaining int `json:"remaining" doc:"Calls that are left." example:"7"`
	// Reset is how long from the answer on the window lasts. A budget without it is not used.
	Reset time.Duration `json:"reset_ms" doc:"Milliseconds until there are new ones." example:"12000"`
	Limit int           `json:"limit" doc:"Calls of a whole window; 0: unknown." example:"60"`
	// Name tells several limits of an API apart, such as a policy's or "hour".
	Name string `json:"-"`
	// Shown says that Name is the operator's and may be shown; a name that the API gave may be a secret.
	Shown bool `json:"-"`
	// Also are the other limits that the answer announced, beginning with the one with the fewest calls
	// left; at most 3.
	Also []Budget `json:"-"`
	// Scope is the scope of the limit. An Outcome of package breaker has it by WithScope.
	Scope Scope `json:"-"`
}

// MarshalJSON writes Reset in milliseconds, rounded up to 1.
func (b Budget) MarshalJSON() ([]byte, error) {
	type fields Budget // without this method
	if b.Reset > 0 {
		b.Reset = max(1, b.Reset/time.Millisecond)
	}
	return json.Marshal(fields(b))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Budget) UnmarshalJSON(data []byte) error {
	type fields Budget
	if err := json.Unmarshal(data, (*fields)(b)); err != nil {
		return fmt.Errorf("budget: %w", err)
	}
	b.Reset *= 1e6 // it was in ms
	return nil
}
