// Package access decides what callers may do over HTTP: tokens with scopes from a file,
// sessions of the dashboard, protection against other sites, and a line in the log for
// each action.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Scope is a kind of things that a token allows.
type Scope string

// The scopes of a token. ScopeOperate includes ScopePayloads, which includes
// ScopeRead.
const (
	// ScopeEnqueue is to enqueue jobs.
	ScopeEnqueue Scope = "enqueue"
	// ScopeRead is to see jobs, breakers, destinations, figures and events, but not what
	// jobs carry.
	ScopeRead Scope = "read"
	// ScopePayloads is to see what jobs carry too: payloads, headers of requests, answers.
	ScopePayloads Scope = "payloads"
	// ScopeOperate is to act on jobs, breakers and destinations.
	ScopeOperate Scope = "operate"
)

// Scopes are all there are.
var Scopes = []Scope{ScopeEnqueue, ScopeRead, ScopePayloads, ScopeOperate}

// ParseScopes reads scopes separated by commas. Errors name what is not a scope.
func ParseScopes(text string) ([]Scope, error) {
	var out []Scope
	for part := range strings.SplitSeq(text, ",") {
		scope := Scope(strings.TrimSpace(part))
		switch {
		case !slices.Contains(Scopes, scope):
			return nil, fmt.Errorf("%s is not a scope; there are %s", quoted(string(scope)), joined(Scopes))
		case !slices.Contains(out, scope):
			out = append(out, scope)
		}
	}
	return out, nil
}

func joined(scopes []Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ", ")
}

// Identity is the caller of a request. The zero value has no rights.
type Identity struct {
	// Name of the token; "local" where there are no tokens.
	Name string
	// Scopes of the token.
	Scopes []Scope

	Bounds

	hash   hash
	tokens *Tokens // nil for Local and in tests

	session  string // its key, where there is one
	sessions *sessions
}

// Local is the caller where there are no tokens, which is on a loopback
// address only.
var Local = Identity{Name: "local", Scopes: []Scope{ScopeEnqueue, ScopeOperate}}

// Can reports whether the caller has the rights of a scope.
func (i Identity) Can(scope Scope) bool {
	for _, has := range i.Scopes {
		switch {
		case has == scope,
			has == ScopeOperate && (scope == ScopePayloads || scope == ScopeRead),
			has == ScopePayloads && scope == ScopeRead:
			return true
		}
	}
	return false
}

// Valid reports whether the token is still in the file and has not expired, and whether the
// session, where a request was let in by one, goes on: which may take a second while Redis
// does not answer, and counts as using it. What goes on for long asks it from time to time.
func (i Identity) Valid() bool {
	if i.tokens == nil {
		return i.Name != ""
	}
	now, ok := i.tokens.byHash(i.hash)
	if !ok || now.Name != i.Name || !slices.Equal(now.Scopes, i.Scopes) || !now.Bounds.equal(i.Bounds) {
		return false
	}
	if i.sessions == nil {
		return true
	}
	_, err := i.sessions.token(context.Background(), i.session)
	return err == nil
}

// Token is the name of the token, "" where there are none.
func (i Identity) Token() string {
	if i.tokens == nil && i.Name == Local.Name {
		return ""
	}
	return i.Name
}

// By returns the caller's name in the history of jobs and breakers.
func (i Identity) By() string {
	if name := i.Token(); name != "" {
		return "token:" + name
	}
	return i.Name
}

type identityKey struct{}

// With returns a context of requests by id.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// From returns the caller; ok is false if there is none.
func From(ctx context.Context) (id Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(Identity)
	return id, ok
}

// Check refuses a caller without the rights of a scope: with 403, or with 401 if there is no caller.
func Check(ctx context.Context, scope Scope) *RefusedError {
	id, ok := From(ctx)
	switch {
	case !ok:
		return errNeeded
	case !id.Can(scope):
		return lacks(id.Name, scope)
	}
	return nil
}

// clock is time.Now, or a test's clock.
type clock func() time.Time
