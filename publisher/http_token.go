package publisher

import (
	"fmt"

	"github.com/tidegate/tidegate/internal/tokens"
	"github.com/tidegate/tidegate/jobs"
)

// credentials reports whether a job's call has credentials, and whose they are: the key's, or
// those of all jobs.
func (h *HTTP) credentials(job *jobs.Job, token string) (scope jobs.Scope, has bool) {
	switch {
	case token != "" && job.Key != "" && h.o.Tokens != nil:
		return jobs.ScopeUser, true
	case token != "":
		return jobs.ScopeGlobal, true
	}
	return jobs.ScopeGlobal, h.o.Header.Get("Authorization") != ""
}

// token returns the token of a job's call, empty for none.
func (h *HTTP) token(job *jobs.Job) (string, error) {
	if job.Key == "" || h.o.Tokens == nil {
		return h.o.AuthToken, nil
	}
	token, ok := h.o.Tokens.Token(job.Key)
	if !ok || token == "" {
		place, again := "", ""
		if _, file := h.o.Tokens.(*TokensFile); file {
			place, again = " in AUTH_TOKENS_FILE", " (the file is read again by itself)"
		}
		return "", fmt.Errorf("no token for key %q%s of destination %s: add it%s, then: tidegate retry %s",
			job.Key, place, job.Destination, again, job.ID)
	}
	if problem, fix := tokens.Check(token); problem != "" {
		return "", fmt.Errorf("the token for key %q of destination %s %s: %s, then: tidegate retry %s",
			job.Key, job.Destination, problem, fix, job.ID)
	}
	return token, nil
}
