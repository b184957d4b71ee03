package notice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidegate/tidegate/internal/text"
)

// CallTimeout bounds one call of a notifier.
const CallTimeout = 10 * time.Second

// Error is what went wrong between a notifier and its service. Neither it nor its Problem
// holds a secret.
type Error struct {
	Op string // "post to Slack"
	// Problem is what is wrong and what to do.
	Problem string
	// Limited is true if the service refused the call because of its limit, for RetryAfter
	// if that is known.
	Limited    bool
	RetryAfter time.Duration
	// Permanent is true if an operator has to change something.
	Permanent bool
	// Refused is true if the service has certainly not done it, Timeout if it may yet.
	Refused, Timeout bool
	// OneNotice is true if the error is about this notice only.
	OneNotice bool
	// Delivered is true if the notice was delivered in another way.
	Delivered bool
	// Err is the cause. It may quote an address that is a secret.
	Err error
}

// Error has the operation and the problem.
func (e *Error) Error() string { return e.Op + ": " + e.Problem }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// NewError classifies an error of a call over HTTP.
func NewError(op string, err error) *Error {
	e := &Error{Op: op, Problem: problemOf(err), Err: err}
	if answer, ok := errors.AsType[*HTTPError](err); ok {
		e.Limited = answer.Status == http.StatusTooManyRequests
		e.RetryAfter = answer.RetryAfter
		e.Refused = answer.Status >= 400 && answer.Status < 500
		switch answer.Status {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
			e.Permanent = true
		}
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED) {
		e.Refused = true // no connection was made
	}
	var timeout interface{ Timeout() bool }
	e.Timeout = errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	e.OneNotice = e.Permanent
	return e
}

// HTTPError is an answer that is an error by its status.
type HTTPError struct {
	Status     int
	Problem    string // cleaned, without secrets; "" if there is none
	RetryAfter time.Duration
}

// Error returns the text of the answer.
func (e *HTTPError) Error() string {
	switch {
	case e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
		return fmt.Sprintf("it is rate limited for %s", e.RetryAfter)
	case e.Status == http.StatusTooManyRequests:
		return "it is rate limited"
	case e.Problem != "":
		return fmt.Sprintf("it answered with status %d: %s", e.Status, e.Problem)
	}
	return fmt.Sprintf("it answered with status %d", e.Status)
}

// ErrNotTheAPI is the error of an answer that is not the service's.
var ErrNotTheAPI = errors.New("the answer is not the API's: it may be that of a proxy")

// Words words an error of any kind, without addresses.
func Words(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Problem
	}
	return problemOf(err)
}

func problemOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*HTTPError](err); ok {
		return e.Error()
	}
	switch {
	case errors.Is(err, ErrNotTheAPI):
		return ErrNotTheAPI.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer within " + CallTimeout.String()
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return "its address cannot be resolved: " + text.Line(e.Err, 100)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return "it did not answer in time"
		}
		err = e.Err // the address may be the secret
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return "it cannot be reached: " + text.Line(e.Err.Error(), 200)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it broke the connection off"
	}
	words := err.Error()
	if strings.Contains(words, "://") || strings.Contains(words, "/services/") {
		return "it cannot be reached"
	}
	return text.Line(words, 200)
}

// PostJSON posts a value. explain returns what the body of an error says, "" for nothing:
// some services repeat what they were sent, so that nothing else of it gets into errors.
func PostJSON(ctx context.Context, client *http.Client, address string, value any, explain func(body []byte) string) error {
	if client == nil || explain == nil {
		return errors.New("notice: post: the client or the function explain is nil")
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(raw))
	if err != nil {
		return errors.New("the address is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode/100 != 2 {
		return &HTTPError{Status: resp.StatusCode, Problem: explain(body), RetryAfter: RetryAfter(resp.Header)}
	}
	if strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		return ErrNotTheAPI
	}
	return nil
}

// RetryAfter reads a Retry-After of seconds, of a day at most; 0 if there is none.
func RetryAfter(h http.Header) time.Duration {
	s, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || s < 0 {
		return 0
	}
	return time.Duration(min(s, 24*3600)) * time.Second
}

// NewHTTPClient returns a client with few connections, which does not follow redirects, so
// that no secret is sent elsewhere. transport may be nil.
func NewHTTPClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: CallTimeout / 2}).DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    CallTimeout / 2,
			MaxResponseHeaderBytes: 64 << 10,
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("the address redirects: set the one that it redirects to")
	}}
}

// CheckURL returns an error if address is not an absolute http or https URL. It does not
// quote the address.
func CheckURL(what, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the URL of %s is not an absolute http or https URL", what)
	}
	return nil
}
