package publisher

import "errors"

// noCallError marks the error of a handler that has not called the API. It fails the
// job like any other error and tells the breaker nothing.
type noCallError struct{ err error }

func (e *noCallError) Error() string { return e.err.Error() }

func (e *noCallError) Unwrap() error { return e.err }

func isNoCall(err error) bool {
	_, ok := errors.AsType[*noCallError](err)
	return ok
}
