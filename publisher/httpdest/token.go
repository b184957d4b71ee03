package httpdest

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/call/progress"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/jobs"
)

// Publish implements publisher.Handler.
func (h *Destination) Publish(ctx context.Context, job *jobs.Job) error {
	if job == nil {
		return errors.New("httpdest: publish: the job is nil")
	}
	if err := h.checkKey(job); err != nil {
		return jobs.Discard(&progress.NotCalledError{Err: err})
	}
	token, err := h.token(ctx, job)
	if err != nil {
		return h.withCredentials(ctx, err, job, "")
	}
	err = h.send(ctx, job, token)
	if _, refused := errors.AsType[*jobs.UnauthorizedError](err); !refused {
		return err
	}
	err = h.withCredentials(ctx, err, job, token)
	other, problem := h.renew(ctx, job, token)
	switch {
	case problem != nil:
		return &progress.SentError{Err: h.withCredentials(ctx, problem, job, "")}
	case other == token:
		return err
	}
	if problem := progress.Of(ctx).Again(job); problem != nil {
		return &progress.SentError{Err: problem}
	}
	return h.withCredentials(ctx, h.send(ctx, job, other, token), job, other)
}

// withCredentials adds to an error of refused credentials which those are: token, or what the
// tokens of the job's key are obtained with.
func (h *Destination) withCredentials(ctx context.Context, err error, job *jobs.Job, token string) error {
	denied, refused := errors.AsType[*jobs.UnauthorizedError](err)
	if !refused {
		return err
	}
	if of := h.obtainedWith(tokenKey(ctx, job)); of != "" {
		token = of
	} else if token == "" {
		token = h.o.Header.Get(h.o.AuthHeader)
	}
	own := *denied
	own.Credentials = h.credentialsID(token)
	return &own
}

// obtainedWith is what the tokens of a key are obtained with, if a TokenSource says that.
func (h *Destination) obtainedWith(key string) string {
	if s, ok := h.o.TokenSource.(interface{ Seed(key string) string }); ok {
		return s.Seed(key)
	}
	return ""
}

// credentialsID returns 16 bits that distinguish credentials, "" for none. A match by
// chance makes the jobs wait for the probe. Without CredentialsKey a reader of Redis can check
// guesses against them: of no use for a random token, but a password gets none.
func (h *Destination) credentialsID(credentials string) string {
	scheme, _, _ := strings.Cut(credentials, " ") // of a header
	switch {
	case credentials == "":
		return ""
	case h.o.CredentialsKey != "":
		mac := hmac.New(sha256.New, []byte(h.o.CredentialsKey))
		_, _ = mac.Write([]byte(credentials)) // never fails
		return hex.EncodeToString(mac.Sum(nil)[:2])
	case h.o.basic(), strings.EqualFold(scheme, "Basic"):
		return ""
	}
	sum := sha256.Sum256([]byte(credentials))
	return hex.EncodeToString(sum[:2])
}

// CredentialsOf identifies the credentials of calls under a key that has its own, or, for key "", the destination's
// credentials; "" if there are none.
func (h *Destination) CredentialsOf(key string) string {
	switch {
	case h.o.TokenSource != nil:
		if (key != "") != h.o.TokenSource.PerKey() {
			return ""
		}
		return h.credentialsID(h.obtainedWith(key))
	case key == "" && h.authToken() == "":
		return h.credentialsID(h.o.Header.Get(h.o.AuthHeader))
	case key == "":
		return h.credentialsID(h.authToken())
	case h.o.Tokens == nil:
		return ""
	}
	token, _ := h.o.Tokens.Token(key)
	return h.credentialsID(token)
}

// tokenKey is the key that chooses the token of a job's call: the member of the destination's pool, or the job's key.
func tokenKey(ctx context.Context, job *jobs.Job) string {
	return cmp.Or(progress.Member(ctx), job.Key)
}

// authToken is the token of calls whose key has none.
func (h *Destination) authToken() string {
	if h.tokenFile != nil {
		return h.tokenFile.Current()
	}
	return h.o.AuthToken
}

// watchToken makes AuthTokenFile give the token.
func (h *Destination) watchToken() error {
	if h.o.AuthTokenFile == "" {
		return nil
	}
	log := h.o.Logger.With("file", h.o.AuthTokenFile)
	file, _, err := tokens.Watch(tokens.WatchOptions[string]{
		Path: h.o.AuthTokenFile,
		Parse: func(content []byte) (string, error) {
			token := strings.TrimRight(string(content), "\r\n")
			switch problem, fix := tokens.Check(token); {
			case problem != "":
				return "", fmt.Errorf("the token %s: %s", problem, fix)
			case h.o.basic() && !strings.Contains(token, ":"):
				return "", errors.New("the token " + noColon)
			}
			secrets := h.secretsOf(token)
			h.secrets.Add("", secrets...)
			if h.o.OnToken != nil {
				h.o.OnToken(secrets...)
			}
			return token, nil
		},
		Changed: func(string, fs.FileInfo) {
			h.tokenChanged.Store(true)
			log.Info("the file of the token was read again")
		},
		Failed: func(err error) {
			log.Warn("the file of the token cannot be used; the token read before stays in use", "error", err)
		},
	})
	if err != nil {
		return fmt.Errorf("AuthTokenFile %q: %w", h.o.AuthTokenFile, err)
	}
	h.tokenFile = file
	return nil
}

// credentials reports whether a job's call has credentials, and whether they belong to its key or to all jobs.
func (h *Destination) credentials(ctx context.Context, job *jobs.Job, token string) (scope jobs.Scope, has bool) {
	switch {
	case token != "" && tokenKey(ctx, job) != "" && (h.o.Tokens != nil || h.o.TokenSource != nil && h.o.TokenSource.PerKey()):
		return jobs.ScopeUser, true
	case token != "":
		return jobs.ScopeGlobal, true
	}
	return jobs.ScopeGlobal, h.o.Header.Get(h.o.AuthHeader) != ""
}

// token returns the token of a job's call, empty for none. The error is the outcome of the job.
func (h *Destination) token(ctx context.Context, job *jobs.Job) (string, error) {
	if h.o.TokenSource != nil {
		token, err := h.o.TokenSource.Token(ctx, tokenKey(ctx, job))
		return token, h.withoutToken(ctx, job, err)
	}
	key, member := tokenKey(ctx, job), progress.Member(ctx)
	if key == "" || h.o.Tokens == nil {
		return h.authToken(), nil
	}
	token, ok := h.o.Tokens.Token(key)
	if (!ok || token == "") && member != "" { // it left the pool a moment ago: another member makes the call
		return "", fmt.Errorf("the token %q has left the pool of destination %s: %w", member, job.Destination, breakerhttp.ErrNotSent)
	}
	if !ok || token == "" {
		place, again := "", ""
		if _, file := h.o.Tokens.(*TokensFile); file {
			place, again = " in AUTH_TOKENS_FILE", " (the file is read again by itself)"
		}
		return "", h.withoutToken(ctx, job, fmt.Errorf("no token for key %q%s of destination %s: add it%s", key, place, job.Destination, again))
	}
	if problem, fix := tokens.Check(token); problem != "" {
		return "", h.withoutToken(ctx, job, fmt.Errorf("the token for key %q of destination %s %s: %s", key, job.Destination, problem, fix))
	}
	return token, nil
}

// renew returns a token in place of one that the API has refused; the same one if there is no
// other. The error is the outcome of the job.
func (h *Destination) renew(ctx context.Context, job *jobs.Job, refused string) (string, error) {
	if h.o.TokenSource != nil {
		token, err := h.o.TokenSource.Renew(ctx, tokenKey(ctx, job), refused)
		return token, h.withoutToken(ctx, job, err)
	}
	if h.tokenFile != nil {
		h.tokenFile.Recheck(0)
	}
	if file, ok := h.o.Tokens.(*TokensFile); ok {
		file.file.Recheck(0)
	}
	return h.token(ctx, job)
}

// withoutToken is the outcome of a job that has no token, for which no call was made.
func (h *Destination) withoutToken(ctx context.Context, job *jobs.Job, err error) error {
	denied, ok := errors.AsType[*jobs.UnauthorizedError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		own := *denied
		own.Err = &progress.NotCalledError{Err: denied.Err}
		return &own
	case errors.Is(err, breakerhttp.ErrNotSent):
		return err
	case progress.Of(ctx).Refused():
		// Jobs that wait for a token do not fail because the old one was taken out of the file.
		return &jobs.UnauthorizedError{Err: &progress.NotCalledError{Err: err}, Scope: jobs.ScopeUser}
	}
	if job.Key != "" { // a job without one stays without
		err = fmt.Errorf("%w, then: tidegate retry %s", err, job.ID)
	}
	return jobs.Discard(&progress.NotCalledError{Err: err})
}

// CredentialsCanChange reports whether ChangedKeys may ever return a key.
func (h *Destination) CredentialsCanChange() bool {
	_, file := h.o.Tokens.(*TokensFile)
	return file || h.tokenFile != nil || h.o.TokenSource != nil
}

// ChangedKeys returns the keys whose credentials have changed since the last call, "" for the destination's.
func (h *Destination) ChangedKeys() []string {
	if h.tokenFile != nil {
		h.tokenFile.Current() // checks the file
	}
	if h.tokenChanged.Swap(false) {
		return append(h.changedOfKeys(), "")
	}
	return h.changedOfKeys()
}

func (h *Destination) changedOfKeys() []string {
	if h.o.TokenSource != nil {
		return h.o.TokenSource.Changed()
	}
	if file, ok := h.o.Tokens.(*TokensFile); ok {
		return file.ChangedKeys()
	}
	return nil
}
