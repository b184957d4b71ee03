package slack

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/slack-go/slack"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
)

// Errors of Slack's that the code names more than once.
const (
	errChannelNotFound = "channel_not_found"
	errMissingScope    = "missing_scope"
)

// newError classifies an error of slack-go or of a call over HTTP. One that is classified
// keeps its operation.
func newError(op string, err error) *notice.Error {
	if e, ok := errors.AsType[*notice.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[slack.StatusCodeError](err); ok {
		err = &post.StatusError{Status: e.Code}
	}
	// Slack has three ways to refuse a call because of its limit.
	if e, ok := errors.AsType[*slack.RateLimitedError](err); ok {
		err = &post.StatusError{Status: http.StatusTooManyRequests, RetryAfter: max(0, e.RetryAfter)}
	}
	e := post.Error(op, err)
	code := slackCode(err)
	if code == "" {
		return e
	}
	e.Problem = problem(err)
	e.Limited = code == "ratelimited" || code == "rate_limited"
	e.Permanent = is(err, hopeless)
	return e
}

// slackCode is what Slack calls the error, or "".
func slackCode(err error) string {
	if e, ok := errors.AsType[slack.SlackErrorResponse](err); ok {
		return e.Err
	}
	return ""
}

// is reports whether Slack calls the error by one of the codes.
func is(err error, codes string) bool {
	code := slackCode(err)
	return code != "" && slices.Contains(strings.Fields(codes), code)
}

// Errors of Slack's by what they mean.
const (
	// A message is not there any more, or may not be changed.
	orphans = "thread_not_found message_not_found cant_update_message edit_window_closed channel_not_found is_archived is_inactive " +
		"not_in_channel cannot_reply_to_message restricted_action_thread_locked"
	// The app lacks a scope, or does not know the method.
	forbidden = "missing_scope no_permission unknown_method method_not_supported_for_channel_type not_allowed_token_type not_in_channel"
	// No repetition corrects it.
	hopeless = "invalid_auth not_authed account_inactive token_revoked token_expired org_login_required ekm_access_denied " +
		"not_allowed_token_type access_denied team_access_not_granted missing_scope no_permission channel_not_found not_in_channel " +
		"is_archived restricted_action restricted_action_read_only_channel invalid_blocks msg_too_long no_text no_service no_team " +
		"team_disabled action_prohibited posting_to_general_channel_denied"
)

// mayNot reports whether the app lacks a scope, or does not know the method.
func mayNot(err error) bool {
	if e, ok := errors.AsType[slack.StatusCodeError](err); ok && e.Code == http.StatusNotFound {
		return true
	}
	e, ok := errors.AsType[*post.StatusError](err)
	return errors.Is(err, errHidden) || is(err, forbidden) || ok && e.Status == http.StatusNotFound
}

// problem words Slack's error, and what to do.
func problem(err error) string {
	e, _ := errors.AsType[slack.SlackErrorResponse](err)
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
		return "the Slack app lacks a scope: add it (docs/alerts.md lists them), and install the app again"
	case "restricted_action", "restricted_action_read_only_channel", "posting_to_general_channel_denied":
		return "the Slack workspace does not let the app post in this channel (" + codeOnly(e.Err) + "): ask its administrators, or set SLACK_CHANNEL to another one"
	}
	if code := codeOnly(e.Err); code != "" {
		return "Slack answered " + code
	}
	return "Slack answered with an error that is not one of its own"
}

// codeOnly returns s if it can be an error code or a scope and holds no secret, else "".
func codeOnly(s string) string {
	if len(s) > 60 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_:.,") != "" {
		return ""
	}
	return s
}
