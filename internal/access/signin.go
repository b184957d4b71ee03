package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// The names of the session's cookie. Browsers take the first one only from a secure
// page of this very host, so that no other host can plant it.
const (
	secureCookie = "__Host-tidegate"
	plainCookie  = "tidegate"
)

// cookieLength is that of a cookie's value.
const cookieLength = 43

// SignIn makes a session for the owner of a token and sets its cookie. The error is a
// *[RefusedError] that says how to answer: 400, 401, 403, 429 or 503.
func (g *Guard) SignIn(w http.ResponseWriter, r *http.Request, token string) error {
	if err := g.sameSite(r); err != nil {
		return err
	}
	if g.Open() {
		return nil // all are signed in
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return &RefusedError{Status: http.StatusBadRequest, Message: "give a token"}
	}
	id, ok := g.o.Tokens.Lookup(token)
	if !ok {
		return g.wrongToken(r, "this token is not known, or has expired")
	}
	ctx := With(r.Context(), id)
	if !id.Can(ScopeRead) {
		Audit(ctx, g.o.Logger, "sign in", slog.String("result", "refused: the token lacks the scope read"))
		return refusalOf(&ScopeError{id.Name, ScopeRead})
	}
	// Whoever signs in anew, perhaps as somebody else, leaves nothing behind.
	if old := g.cookie(r); old != "" {
		_ = g.sessions.end(r.Context(), old) // it ends by itself
	}
	value, err := g.sessions.begin(r.Context(), id.hash)
	if err != nil {
		g.o.Logger.WarnContext(r.Context(), "nobody can sign in", "error", err)
		return refusedAway()
	}
	g.setCookie(w, r, value, int(SessionMost/time.Second))
	Audit(ctx, g.o.Logger, "sign in", slog.String("result", "ok"))
	return nil
}

// SignOut ends the session of a request and takes its cookie back. The error is a
// *[RefusedError]: 403, or 503 where the session could not be ended everywhere.
func (g *Guard) SignOut(w http.ResponseWriter, r *http.Request) error {
	if err := g.sameSite(r); err != nil {
		return err
	}
	value := g.cookie(r)
	if value == "" {
		return nil
	}
	g.setCookie(w, r, "", -1)
	ctx := g.withOwner(r.Context(), value)
	if err := g.sessions.end(r.Context(), value); err != nil {
		Audit(ctx, g.o.Logger, "sign out", slog.String("result", "failed: Redis cannot be reached"))
		return refusedAway()
	}
	Audit(ctx, g.o.Logger, "sign out", slog.String("result", "ok"))
	return nil
}

// withOwner says whose session it is, if that can be found out.
func (g *Guard) withOwner(ctx context.Context, cookie string) context.Context {
	token, err := g.sessions.token(ctx, cookie)
	if err != nil {
		return ctx
	}
	id, _ := g.o.Tokens.byHash(token)
	return With(ctx, id)
}

// session finds out whose session a request belongs to. The token is looked up anew
// each time: with it its sessions end.
func (g *Guard) session(w http.ResponseWriter, r *http.Request) (Identity, error) {
	value := g.cookie(r)
	if value == "" {
		return Identity{}, errNoSession
	}
	token, err := g.sessions.token(r.Context(), value)
	if errors.Is(err, errAway) {
		return Identity{}, refusedAway()
	}
	if err == nil {
		if id, ok := g.o.Tokens.byHash(token); ok {
			return id, nil
		}
	}
	g.setCookie(w, r, "", -1)
	return Identity{}, errNoSession
}

func refusedAway() error {
	return &RefusedError{
		Status:     http.StatusServiceUnavailable,
		Message:    "Redis cannot be reached or takes no writes, and nobody can sign in without it",
		RetryAfter: awayFor,
	}
}

// secure says whether people reach this server by TLS, which something in front of it
// ends. Whoever claims it falsely gets a cookie that is of no use to them.
func (g *Guard) secure(r *http.Request) bool {
	outermost, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ",")
	return r.TLS != nil || strings.EqualFold(strings.TrimSpace(outermost), "https") ||
		g.public != nil && g.public.Scheme == "https"
}

func (g *Guard) cookieName(r *http.Request) string {
	if g.secure(r) {
		return secureCookie
	}
	return plainCookie
}

// cookie is the value of the request's cookie; empty if it has none that could be ours.
func (g *Guard) cookie(r *http.Request) string {
	c, err := r.Cookie(g.cookieName(r))
	if err != nil || len(c.Value) != cookieLength {
		return ""
	}
	return c.Value
}

// setCookie sets the cookie, or takes it back where maxAge, in seconds, is below 0.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS, as on this machine alone, a Secure cookie would not come back
		Name: g.cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: g.secure(r),
		SameSite: http.SameSiteLaxMode, // links in alerts must arrive signed in
	})
}
