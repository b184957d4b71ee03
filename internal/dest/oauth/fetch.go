package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/jobs"
)

const (
	// firstRetry and lastRetry bound the pause after a failure of the token endpoint, refusedRetry
	// is that after a refusal that no change of a file ends.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	refusedRetry          = time.Minute
	// longestRetry bounds what the token endpoint asks for by Retry-After.
	longestRetry = time.Hour
	// shortest is the least lifetime of an access token.
	shortest = time.Second
	// longestToken bounds an access token, in bytes: what headers of HTTP hold.
	longestToken = 16 << 10
	// maxDescription bounds what is kept of an error's description.
	maxDescription = 200
)

// renewal is the result of a call to the token endpoint.
type renewal struct {
	token      string
	until, due time.Time
	lost       bool // another process has renewed the record meanwhile
	err        error
	problem    string
	retry      time.Time
}

// The prefixes of a record's problem.
const (
	refusedProblem = "refused: " // the refresh token: only people can help
	clientProblem  = "client: "  // the client: likewise, for all keys
	failedProblem  = "failed: "  // it may help to ask again
)

var (
	// clientCodes are errors of the client: RFC 6749, section 5.2, and GitHub's.
	clientCodes = []string{"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "incorrect_client_credentials"}
	// failedCodes and failedStatuses come from a token endpoint that may give a token later.
	failedCodes    = []string{"temporarily_unavailable", "server_error", "slow_down"}
	failedStatuses = []int{http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly}
)

// fetch gets tokens from the token endpoint with the lease of a claim, and keeps them.
func (s *Source) fetch(name, seed string, have sealed, c claim) renewal {
	refresh := cmp.Or(have.Refresh, seed)
	if why, retry := s.failing(); why != "" {
		s.release(name)
		r := renewal{problem: failedProblem + s.withoutToken(name, why), retry: retry}
		r.err = s.problem(r.problem, r.retry)
		return r
	}
	asked := time.Now()
	got, err := s.ask(refresh)
	if err == nil {
		err = usableToken(got)
	}
	if err != nil {
		return s.failed(name, seed, have, err, c)
	}
	r := renewal{token: got.AccessToken}
	until, due, ended := "", "", false
	if !got.Expiry.IsZero() {
		// Counted from the request on: the token may be as old.
		left := time.Until(got.Expiry) - time.Since(asked)
		if ended = left < shortest; ended {
			left = 0
		}
		usable, renew := left-min(left/10, 5*time.Second), max(left*4/5, left-time.Minute)
		r.until, r.due = time.Now().Add(usable), time.Now().Add(renew)
		until, due = strconv.FormatInt(usable.Milliseconds(), 10), strconv.FormatInt(renew.Milliseconds(), 10)
	}
	got.RefreshToken = cmp.Or(got.RefreshToken, refresh)
	if s.file == nil {
		got.RefreshToken = "" // of client credentials: RFC 6749, section 4.4.3
	}
	next := sealed{Access: got.AccessToken, Refresh: got.RefreshToken}
	text, err := s.seal(name, next)
	if err != nil {
		return s.failed(name, seed, have, err, c)
	}
	version, _ := strconv.Atoi(c.version)
	fields := []any{
		"tokens", text, "access", hash(got.AccessToken), "refresh", hash(got.RefreshToken), "version", version + 1,
		"+until", until, "+due", due, "refused", "",
	}
	if c.due == dueSeed {
		fields = append(fields, "before", c.before, "+seeded", "0", "seed", s.seedHash(seed))
	}
	kept, err := s.store(name, c.version, fields, s.file != nil && got.RefreshToken != refresh)
	switch {
	case err != nil:
		s.o.Logger.Warn("an access token could not be stored for other workers", "key", name, "error", err)
	case !kept:
		return renewal{lost: true}
	case ended:
		// Kept before: the refresh token may have been rotated.
		c.version = strconv.Itoa(version + 1)
		return s.failed(name, seed, next, errors.New("its answer has an access token that ended before it arrived"), c)
	}
	s.failures(name, 0)
	s.failures("", 0)
	s.endpoint("", time.Time{})
	s.o.Logger.Debug("an access token was renewed", "key", name, "rotated", got.RefreshToken != refresh)
	return r
}

// store keeps the result of a renewal. If the refresh token has been rotated it repeats that until
// it has succeeded or the source is closed: without the new one the key is lost.
func (s *Source) store(name, version string, fields []any, rotated bool) (kept bool, err error) {
	pause, settle := pollMin, s.settle
	if rotated {
		settle = s.settleOnReplica
	}
	for {
		kept, err = settle(s.life, name, version, fields...)
		if err == nil || !rotated {
			return kept, err
		}
		select {
		case <-time.After(pause):
		case <-s.life.Done():
			s.o.Logger.Error("a rotated refresh token could not be stored: let the user sign in again and put the new refresh token into OAUTH_REFRESH_TOKENS_FILE", "key", name, "error", err)
			return false, err
		}
		pause = min(2*pause, time.Second)
	}
}

// usableToken returns an error for an access token that cannot be sent.
func usableToken(t *oauth2.Token) error {
	if problem, _ := tokens.Check(t.AccessToken); problem != "" || len(t.AccessToken) > longestToken {
		return errors.New("its answer has an access token that cannot be sent")
	}
	return nil
}

// ask calls the token endpoint, twice if it is not known where it takes the client's secret.
func (s *Source) ask(refresh string) (*oauth2.Token, error) {
	// Of both calls: the lease of the renewal ends shortly after.
	ctx, cancel := context.WithTimeout(context.WithValue(s.life, oauth2.HTTPClient, s.client), s.o.Timeout)
	defer cancel()
	style := oauth2.AuthStyle(s.style.Load())
	if style != oauth2.AuthStyleAutoDetect {
		return s.askAs(ctx, refresh, style)
	}
	// The library's own detection repeats any call that has failed, and a refresh token may be
	// good for one.
	style = oauth2.AuthStyleInHeader
	got, err := s.askAs(ctx, refresh, style)
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.ErrorCode != "invalid_grant" &&
		(refused.ErrorCode == "invalid_client" || refused.ErrorCode == "invalid_request" || refused.Response.StatusCode == http.StatusUnauthorized) {
		style = oauth2.AuthStyleInParams
		got, err = s.askAs(ctx, refresh, style)
	}
	if err == nil {
		s.style.Store(int32(style))
	}
	return got, err
}

func (s *Source) askAs(ctx context.Context, refresh string, style oauth2.AuthStyle) (*oauth2.Token, error) {
	if s.file == nil {
		c := clientcredentials.Config{
			ClientID: s.o.ClientID, ClientSecret: s.o.ClientSecret, TokenURL: s.o.TokenURL, Scopes: s.o.Scopes, AuthStyle: style,
		}
		return c.Token(ctx) //nolint:wrapcheck // failed words it
	}
	c := oauth2.Config{ClientID: s.o.ClientID, ClientSecret: s.o.ClientSecret, Endpoint: oauth2.Endpoint{TokenURL: s.o.TokenURL, AuthStyle: style}}
	return c.TokenSource(ctx, &oauth2.Token{RefreshToken: refresh}).Token() //nolint:wrapcheck // failed words it
}

// failed keeps the failure of a call to the token endpoint, so that no process repeats it too
// soon, or at all with a refresh token that is refused.
func (s *Source) failed(name, seed string, have sealed, err error, c claim) renewal {
	r := renewal{}
	answer, answered := errors.AsType[*oauth2.RetrieveError](err)
	what, of := s.describe(err, seed, have.Refresh), s.seedHash(seed)
	if have.Refresh != "" {
		of = hash(have.Refresh)
	}
	kind, down, until := failedProblem, "", time.Time{}
	if answered {
		kind = s.kindOf(answer)
	}
	switch kind {
	case refusedProblem:
		if answer.ErrorCode != "invalid_grant" {
			r.retry = time.Now().Add(refusedRetry) // a code of the server's own
		}
		r.problem = kind + fmt.Sprintf("the token server refuses the refresh token of %s (%s): let the user sign in again and put the new refresh token into OAUTH_REFRESH_TOKENS_FILE", s.of(name), what)
	case clientProblem:
		r.retry = time.Now().Add(refusedRetry)
		r.problem = kind + fmt.Sprintf("the token server refuses the client of destination %s (%s): check OAUTH_CLIENT_ID, OAUTH_CLIENT_SECRET, OAUTH_SCOPES and OAUTH_TOKEN_URL", s.o.Destination, what)
	default:
		failures := s.failures(name, 1)
		_, unanswered := errors.AsType[*url.Error](err)
		// A 4xx may concern one key.
		ofEndpoint := unanswered || answered && answer.Response.StatusCode >= http.StatusInternalServerError
		if ofEndpoint && name != "" {
			failures = max(failures, s.failures("", 1))
		}
		pause := min(firstRetry<<min(failures-1, 8), lastRetry)
		if answered {
			pause = max(pause, min(hint.Parse(answer.Response.Header, true, time.Now(), hint.RetryAfter).Wait, longestRetry))
		}
		r.retry = time.Now().Add(pause)
		r.problem = kind + s.withoutToken(name, what)
		if ofEndpoint {
			down, until = what, r.retry
		}
	}
	s.endpoint(down, until)
	retry := ""
	if !r.retry.IsZero() {
		retry = strconv.FormatInt(time.Until(r.retry).Milliseconds(), 10)
	}
	fields := []any{"problem", r.problem, "problem_of", of + ":" + s.clientID, "+problem_until", retry}
	switch kept, err := s.settle(s.life, name, c.version, fields...); {
	case err == nil && !kept:
		return renewal{lost: true}
	case err != nil:
		s.o.Logger.Warn("a failed renewal could not be stored for other workers", "key", name, "error", err)
	}
	s.o.Logger.Warn("an access token could not be renewed", "key", name, "error", r.problem)
	r.err = s.problem(r.problem, r.retry)
	return r
}

func (s *Source) withoutToken(name, why string) string {
	return fmt.Sprintf("no access token for %s: the token server %s", s.of(name), why)
}

// kindOf returns the prefix of the problem that an answer of the token endpoint is.
func (s *Source) kindOf(answer *oauth2.RetrieveError) string {
	code, status := answer.ErrorCode, answer.Response.StatusCode
	switch {
	case status == http.StatusProxyAuthRequired: // a proxy's
		return failedProblem
	case code == "invalid_grant" && s.file != nil:
		return refusedProblem
	case slices.Contains(failedCodes, code), slices.Contains(failedStatuses, status), status >= http.StatusInternalServerError:
		return failedProblem
	case slices.Contains(clientCodes, code), code == "" && status == http.StatusUnauthorized:
		return clientProblem
	case code == "" && (s.file != nil || status == http.StatusForbidden || status == http.StatusNotFound):
		return failedProblem // not an answer of OAuth: a proxy's page
	case s.file != nil:
		// Servers have codes of their own for a refresh token that was revoked.
		return refusedProblem
	default:
		return clientProblem
	}
}

// problem is the error of a record's problem, which lasts until retry.
func (s *Source) problem(text string, retry time.Time) error {
	if what, ok := strings.CutPrefix(text, refusedProblem); ok {
		return &jobs.UnauthorizedError{Err: errors.New(what), Scope: jobs.ScopeUser, Permanent: true}
	}
	if what, ok := strings.CutPrefix(text, clientProblem); ok {
		return &jobs.UnauthorizedError{Err: errors.New(what), Scope: jobs.ScopeGlobal, Permanent: true}
	}
	return s.held(strings.TrimPrefix(text, failedProblem), time.Until(retry))
}

// held is the error of calls for which there is no token before a time has passed: their key
// waits, or with client credentials the destination. Where each process has tokens of its own, only
// the calls of this one wait.
func (s *Source) held(what string, after time.Duration) error {
	e := &jobs.UnauthorizedError{Err: errors.New(what), Scope: jobs.ScopeGlobal, RetryAfter: max(firstRetry, after)}
	if s.record != "oauth" {
		e.Err = ownError{e.Err}
	}
	if s.file != nil {
		e.Scope = jobs.ScopeUser
	}
	return e
}

// ownError is the error of a process that gets tokens of its own.
type ownError struct{ error }

func (ownError) Is(target error) bool { return errors.Is(target, breakerhttp.ErrNotSent) }

// errorCode is the form of OAuth's error codes, as it is kept in texts.
var errorCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

// describe words an error of the token endpoint without secrets. The library's own text repeats
// the answer.
func (s *Source) describe(err error, tokens ...string) string {
	redact := secret.New(append(tokens, secret.OfClient(s.o.ClientID, s.o.ClientSecret)...)...).Redact
	clean := func(t string) string { return text.Head(redact(text.OneLine(redact(t))), maxDescription) }
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		if call, ok := errors.AsType[*url.Error](err); ok {
			err = call.Err // without the URL
		}
		return clean("cannot be reached or understood: " + err.Error())
	}
	if answer.Response.StatusCode == http.StatusProxyAuthRequired {
		return "cannot be reached: a proxy refuses its credentials (407); check those in HTTP_PROXY and HTTPS_PROXY"
	}
	what := "answered " + strconv.Itoa(answer.Response.StatusCode)
	if errorCode.MatchString(answer.ErrorCode) {
		what += " " + answer.ErrorCode
	}
	if answer.ErrorDescription != "" {
		what += ": " + clean(answer.ErrorDescription)
	}
	return what
}
