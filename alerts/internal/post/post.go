// Package post is how notifiers call their services over HTTP.
package post

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
	"time"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/text"
)

// StatusError is a response that is an error by its status.
type StatusError struct {
	Status     int
	Problem    string // cleaned, without secrets; "" if there is none
	RetryAfter time.Duration
}

// Error returns the text of the response.
func (e *StatusError) Error() string {
	out := fmt.Sprintf("it answered with status %d", e.Status)
	switch {
	case e.Status == http.StatusTooManyRequests && e.RetryAfter > 0:
		out = fmt.Sprintf("it is rate limited for %s", e.RetryAfter)
	case e.Status == http.StatusTooManyRequests:
		out = "it is rate limited"
	case e.Problem != "":
		out += ": " + e.Problem
	}
	return out
}

// ErrNotTheAPI is the error of a response that is not the service's.
var ErrNotTheAPI = errors.New("the answer is not the API's: it may be that of a proxy")

// Error classifies an error of a call over HTTP.
func Error(op string, err error) *notice.Error {
	e := &notice.Error{Op: op, Problem: Words(err), Err: err}
	if s, ok := errors.AsType[*StatusError](err); ok {
		e.Limited, e.RetryAfter = s.Status == http.StatusTooManyRequests, s.RetryAfter
		switch s.Status {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
			e.Permanent = true
		}
	}
	return e
}

// Words words an error of any kind, without addresses.
func Words(err error) string {
	if e, ok := errors.AsType[*notice.Error](err); ok {
		return e.Problem
	}
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Error()
	}
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrNotTheAPI):
		return ErrNotTheAPI.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer within " + notice.CallTimeout.String()
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

// JSON posts a value. explain returns what the body of an error says, "" for nothing:
// some services repeat what they were sent, so that nothing else of it gets into errors.
func JSON(ctx context.Context, client *http.Client, address string, value any, explain func(body []byte) string) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, notice.CallTimeout)
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
		return &StatusError{Status: resp.StatusCode, Problem: explain(body), RetryAfter: RetryAfter(resp.Header)}
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

// Client returns a client with few connections, which does not follow redirects, so
// that no secret is sent elsewhere. transport may be nil.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: notice.CallTimeout / 2}).DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    notice.CallTimeout / 2,
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
