package hint

import (
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
