package alerts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slack-go/slack"
)

// tellError is what went wrong between us and those who are to be told.
type tellError struct {
	op  string
	err error
}

// Error says it in words, without the address, which may be a secret.
func (e *tellError) Error() string { return e.op + ": " + inWords(e.err) }

func (e *tellError) Unwrap() error { return e.err }

// Errors of Slack's that are told apart.
const (
	errChannelNotFound = "channel_not_found"
	errMissingScope    = "missing_scope"
)

// orphaned says that a message is not there any more, or nobody may change it.
func orphaned(err error) bool {
	switch slackCode(err) {
	case "thread_not_found", "message_not_found", "cant_update_message", "edit_window_closed",
		errChannelNotFound, "is_archived", "is_inactive", "not_in_channel", "cannot_reply_to_message", "restricted_action_thread_locked":
		return true
	}
	return false
}

// unclear are the errors after which Slack may have done what it was asked for.
var unclear = []string{"internal_error", "fatal_error", "request_timeout", "service_unavailable"}

// limited says that the API refused the call because of its limit, and for how long
// if it said so. Slack has three ways to say it.
func limited(err error) (hint time.Duration, ok bool) {
	if e, is := errors.AsType[*slack.RateLimitedError](err); is {
		return max(0, e.RetryAfter), true
	}
	if statusOf(err) == http.StatusTooManyRequests {
		if e, is := errors.AsType[*statusError](err); is {
			return e.retryAfter, true
		}
		return 0, true
	}
	code := slackCode(err)
	return 0, code == "ratelimited" || code == "rate_limited"
}

func isRateLimit(err error) bool {
	_, ok := limited(err)
	return ok
}

// statusError is an answer that says no by its status.
type statusError struct {
	status     int
	problem    string // cleaned, without secrets
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	if e.problem == "" {
		return fmt.Sprintf("status %d", e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.problem)
}

// statusOf is the status of an answer that is an error by its status, else 0.
func statusOf(err error) int {
	if e, ok := errors.AsType[slack.StatusCodeError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	return 0
}

// slackCode is what Slack calls the error, or "".
func slackCode(err error) string {
	if e, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return e.Err
	}
	return ""
}

// mayNot says that the app lacks a scope, or does not know the method.
func mayNot(err error) bool {
	switch slackCode(err) {
	case errMissingScope, "no_permission", "unknown_method", "method_not_supported_for_channel_type", "not_allowed_token_type", "not_in_channel":
		return true
	}
	return statusOf(err) == http.StatusNotFound
}

// refusedOutright says that the API has certainly not done what it was asked for.
func refusedOutright(err error) bool {
	if _, ok := limited(err); ok {
		return true
	}
	if code := slackCode(err); code != "" {
		return !slices.Contains(unclear, code)
	}
	if status := statusOf(err); status >= 400 && status < 500 {
		return true
	}
	// No connection was made.
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// timedOut says that the API did not answer in time: it may yet do what it was asked
// for.
func timedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// hopeless are the errors of Slack's that no repetition mends: somebody has to.
var hopeless = []string{
	"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required",
	"ekm_access_denied", "not_allowed_token_type", "access_denied", "team_access_not_granted",
	errMissingScope, "no_permission", errChannelNotFound, "not_in_channel", "is_archived", "restricted_action",
	"restricted_action_read_only_channel", "invalid_blocks", "msg_too_long", "no_text",
	"no_service", "no_team", "team_disabled", "action_prohibited", "posting_to_general_channel_denied",
}

// needsAPerson says that somebody has to do something before it can work.
func needsAPerson(err error) bool {
	if slices.Contains(hopeless, slackCode(err)) {
		return true
	}
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// inWords says what is wrong and what to do. It never holds a secret: of errors that
// quote an address, which may be one, only the cause is taken.
func inWords(err error) string {
	e, isSlack := errors.AsType[slack.SlackErrorResponse](err)
	if !isSlack {
		return connectionInWords(err)
	}
	switch e.Err {
	case "invalid_auth", "not_authed":
		return "Slack does not accept the bot token: check SLACK_BOT_TOKEN (it starts with xoxb- and belongs to the workspace)"
	case "account_inactive", "token_revoked", "token_expired":
		return "the Slack bot token is not valid any more (" + e.Err + "): install the app again and set SLACK_BOT_TOKEN to its new token"
	case errChannelNotFound:
		return "Slack does not know the channel, or the app may not see it: check SLACK_CHANNEL, and invite the app there with /invite"
	case "not_in_channel":
		return "the Slack app is not in the channel: invite it there with /invite, or give it the scope chat:write.public"
	case "is_archived":
		return "the Slack channel is archived: set SLACK_CHANNEL to another one"
	case errMissingScope:
		if needed := codeOnly(e.Needed); needed != "" {
			return "the Slack app lacks the scope " + needed + ": add it and install the app again"
		}
		return "the Slack app lacks a scope: see docs/alerts.md for those that it needs, and install it again"
	case "restricted_action", "restricted_action_read_only_channel", "posting_to_general_channel_denied":
		return "the Slack workspace does not let the app post in this channel (" + codeOnly(e.Err) + "): ask its administrators, or set SLACK_CHANNEL to another one"
	}
	if code := codeOnly(e.Err); code != "" {
		return "Slack answered " + code
	}
	return "Slack answered with an error that is not one of its own"
}

// codeOnly lets through what can be an error code or a scope, and nothing that could
// hold a secret.
func codeOnly(s string) string {
	if len(s) > 60 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_:.,") != "" {
		return ""
	}
	return s
}

func connectionInWords(err error) string {
	status := statusOf(err)
	switch {
	case status == http.StatusTooManyRequests:
		return "it is rate limited"
	case status > 0:
		if e, ok := errors.AsType[*statusError](err); ok && e.problem != "" {
			return fmt.Sprintf("it answered with status %d: %s", status, e.problem)
		}
		return fmt.Sprintf("it answered with status %d", status)
	case errors.Is(err, errNotTheAPI):
		return errNotTheAPI.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer within " + slackTimeout.String()
	}
	if e, ok := errors.AsType[*slack.RateLimitedError](err); ok {
		return fmt.Sprintf("it is rate limited for %s", e.RetryAfter)
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return "its address cannot be resolved: " + clean(e.Err, 100)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return "it did not answer in time"
		}
		err = e.Err // the address may be the secret
	}
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return "it cannot be reached: " + clean(e.Err.Error(), 200)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it broke the connection off"
	}
	text := err.Error()
	if strings.Contains(text, "://") || strings.Contains(text, "/services/") {
		return "it cannot be reached"
	}
	return clean(text, 200)
}
