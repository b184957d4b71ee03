package callbacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/jobs"
)

// Publish delivers one callback. It makes a Callbacks the handler of [Destination].
//
// 2xx delivers it and 410 ends it. A receiver that cannot be reached, does not answer
// within 10 s, asks for a pause (429, 503 with Retry-After) or answers different callbacks
// in a row with 5xx opens its breaker sooner or later, which costs no retry. Any other
// answer, redirects among them, is a failure.
func (c *Callbacks) Publish(ctx context.Context, job *jobs.Job) error {
	r, u := c.receivers[job.Key], (*url.URL)(nil)
	if target := job.Request.Headers[targetHeader]; target != "" {
		var err error
		if r, u, err = c.ownReceiver(job.Key, target); err != nil {
			return jobs.Discard(err)
		}
	} else if r != nil {
		u = r.url
	}
	if r == nil {
		return c.leave(ctx, job)
	}
	release, later := r.slots.acquire(ctx)
	if release == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		return jobs.Reschedule(max(later, time.Second))
	}
	defer release()
	a, err := r.post(ctx, u, job.ID, job.Payload)
	if err != nil {
		err = r.unanswered(ctx, err)
	} else {
		job.Response = &jobs.Response{Status: a.status, Body: a.body}
		err = r.classify(job.ID, a, time.Now())
	}
	if ctx.Err() == nil {
		r.health.note(ctx, c.log, job.Key, err, time.Now())
	}
	return err
}

// leave reschedules a callback of an unknown receiver for other workers.
func (c *Callbacks) leave(ctx context.Context, job *jobs.Job) error {
	if c.logged.Allow("leave " + job.Key) {
		c.log.WarnContext(ctx, "callbacks are left to other workers: this one has no CALLBACK_URL for their destination", "destination", job.Key, "job", job.ID)
	}
	return jobs.Reschedule(time.Minute)
}

// unanswered returns the outcome of a call without an answer.
func (r *receiver) unanswered(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		// The worker shuts down, or the job was cancelled.
		return fmt.Errorf("the call was cut: %w", context.Canceled)
	case errors.Is(err, context.DeadlineExceeded):
		return &pauseError{text: fmt.Sprintf("the receiver did not answer within %s", r.timeout)}
	}
	return &pauseError{text: "the receiver cannot be reached: " + r.clean(err.Error())}
}

// classify returns the outcome of an answer to a callback.
func (r *receiver) classify(id string, a answer, now time.Time) error {
	failing := r.health.failing(id, a.status >= 500)
	pause := hint.Parse(a.header, true, now, hint.RetryAfter).Wait
	text := "the receiver answered " + strings.TrimSpace(strconv.Itoa(a.status)+" "+http.StatusText(a.status))
	switch {
	case a.status >= 200 && a.status < 300:
		return nil
	case a.status == http.StatusGone:
		return jobs.Discard(errors.New(text + ": it wants no more of these callbacks"))
	case a.status == http.StatusTooManyRequests, a.status >= http.StatusInternalServerError && pause > 0, failing:
		return &pauseError{text: text, pause: pause}
	case a.status >= 300 && a.status < 400 && a.header.Get("Location") != "":
		return errors.New(text + ", a redirect" + r.target(a.header.Get("Location")) +
			": redirects are not followed; set CALLBACK_URL to the final address")
	}
	return errors.New(text)
}

// target returns the host of a redirect; the rest of its address may be secret.
func (r *receiver) target(location string) string {
	to, err := r.url.Parse(location)
	if err != nil || to.Hostname() == "" {
		return ""
	}
	host := url.URL{Scheme: to.Scheme, Host: to.Host}
	text := r.clean(host.String())
	return " to " + text[:min(len(text), 200)]
}

// pauseError is an answer of a receiver that asks for a pause. For the publisher it is a
// limit of this receiver's key.
type pauseError struct {
	text  string
	pause time.Duration // 0 if it named none
}

func (e *pauseError) Error() string { return e.text }

func (e *pauseError) Unwrap() error { return jobs.RateLimited(e.pause, jobs.ScopeUser) }
