package publisher

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/tokens"
	"github.com/tidegate/tidegate/jobs"
)

// Publish implements Handler.
func (h *HTTP) Publish(ctx context.Context, job *jobs.Job) error {
	if err := h.checkKey(job); err != nil {
		return jobs.Discard(&notCalledError{err})
	}
	token, err := h.token(ctx, job)
	if err != nil {
		return err
	}
	err = h.send(ctx, job, token)
	if _, refused := errors.AsType[*jobs.UnauthorizedError](err); !refused {
		return err
	}
	other, problem := h.renew(ctx, job, token)
	switch {
	case problem != nil:
		return problem
	case other == token:
		return err
	}
	if problem := signalsOf(ctx).again(); problem != nil {
		return problem
	}
	return h.send(ctx, job, other)
}

// credentials reports whether a job's call has credentials, and whose they are: the key's, or
// those of all jobs.
func (h *HTTP) credentials(job *jobs.Job, token string) (scope jobs.Scope, has bool) {
	switch {
	case token != "" && job.Key != "" && (h.o.Tokens != nil || h.o.TokenSource != nil && h.o.TokenSource.PerKey()):
		return jobs.ScopeUser, true
	case token != "":
		return jobs.ScopeGlobal, true
	}
	return jobs.ScopeGlobal, h.o.Header.Get(h.o.AuthHeader) != ""
}

// token returns the token of a job's call, empty for none. The error is the outcome of the job.
func (h *HTTP) token(ctx context.Context, job *jobs.Job) (string, error) {
	if h.o.TokenSource != nil {
		token, err := h.o.TokenSource.Token(ctx, job.Key)
		return token, h.withoutToken(job, err)
	}
	if job.Key == "" || h.o.Tokens == nil {
		return h.o.AuthToken, nil
	}
	token, ok := h.o.Tokens.Token(job.Key)
	if !ok || token == "" {
		place, again := "", ""
		if _, file := h.o.Tokens.(*TokensFile); file {
			place, again = " in AUTH_TOKENS_FILE", " (the file is read again by itself)"
		}
		return "", h.withoutToken(job, fmt.Errorf("no token for key %q%s of destination %s: add it%s", job.Key, place, job.Destination, again))
	}
	if problem, fix := tokens.Check(token); problem != "" {
		return "", h.withoutToken(job, fmt.Errorf("the token for key %q of destination %s %s: %s", job.Key, job.Destination, problem, fix))
	}
	return token, nil
}

// renew returns a token in place of one that the API has refused; the same one if there is no
// other. The error is the outcome of the job.
func (h *HTTP) renew(ctx context.Context, job *jobs.Job, refused string) (string, error) {
	if h.o.TokenSource != nil {
		token, err := h.o.TokenSource.Renew(ctx, job.Key, refused)
		return token, h.withoutToken(job, err)
	}
	if file, ok := h.o.Tokens.(*TokensFile); ok {
		file.file.Recheck(0)
	}
	return h.token(ctx, job)
}

// withoutToken is the outcome of a job that has no token, for which no call was made.
func (h *HTTP) withoutToken(job *jobs.Job, err error) error {
	denied, ok := errors.AsType[*jobs.UnauthorizedError](err)
	switch {
	case err == nil, errors.Is(err, breakerhttp.ErrNotSent):
		return err
	case ok:
		own := *denied
		own.Err = &notCalledError{denied.Err}
		return &own
	}
	return jobs.Discard(&notCalledError{fmt.Errorf("%w, then: tidegate retry %s", err, job.ID)})
}

// changedKeys returns the keys whose credentials have changed since the last call.
func (h *HTTP) changedKeys() []string {
	if h.o.TokenSource != nil {
		return h.o.TokenSource.Changed()
	}
	if file, ok := h.o.Tokens.(*TokensFile); ok {
		return file.changedKeys()
	}
	return nil
}
