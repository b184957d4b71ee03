package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The names of the session's cookie. Browsers take the first one only from a secure
// page of this very host, so that no other host can plant it.
const (
	secureCookie = "__Host-tidegate"
	plainCookie  = "tidegate"
)

const (
	// cookieLength is the length of a cookie's value.
	cookieLength = 43
	// maxCookies is how many cookies of the name are looked at: others on the same host,
	// at whatever port, may have set theirs.
	maxCookies = 8
)

// SignIn makes a session for the owner of a token and sets its cookie, or refuses with 400, 401, 403,
// 429 or 503.
func (g *Guard) SignIn(w http.ResponseWriter, r *http.Request, token string) *RefusedError {
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
		return lacks(id.Name, ScopeRead)
	}
	if err := CheckConfined(id); err != nil {
		Audit(ctx, g.o.Logger, "sign in", slog.String("result", "refused: the token is bound to destinations or keys"))
		return err
	}
	// Signing in again, perhaps with another token, ends the sessions before.
	_ = g.sessions.end(r.Context(), g.cookies(r)) // they end by themselves
	value, err := g.sessions.begin(r.Context(), id.hash)
	if err != nil {
		g.o.Logger.WarnContext(r.Context(), "a session cannot be started", "error", err)
		return errRedis
	}
	g.setCookie(w, r, value, int(SessionMost/time.Second))
	Audit(ctx, g.o.Logger, "sign in", slog.String("result", "ok"))
	return nil
}

// SignOut ends the session of a request and takes its cookie back, or refuses: with 403, or 503 where
// the session could not be ended everywhere.
func (g *Guard) SignOut(w http.ResponseWriter, r *http.Request) *RefusedError {
	if err := g.sameSite(r); err != nil {
		return err
	}
	values := g.cookies(r)
	if g.Open() || len(values) == 0 {
		return nil
	}
	g.setCookie(w, r, "", -1)
	ctx := r.Context()
	if id, err := g.owner(ctx, values); err == nil {
		ctx = With(ctx, id)
	}
	if err := g.sessions.end(r.Context(), values); err != nil {
		Audit(ctx, g.o.Logger, "sign out", slog.String("result", "failed: Redis cannot be reached"))
		return errRedis
	}
	Audit(ctx, g.o.Logger, "sign out", slog.String("result", "ok"))
	return nil
}

// owner returns the identity of the first cookie with a session. The token is looked up
// anew each time: with it its sessions end. Errors: errNoSession, errAway.
func (g *Guard) owner(ctx context.Context, cookies []string) (Identity, error) {
	none := errNoSession
	for _, cookie := range cookies {
		key := g.sessions.key(cookie)
		token, err := g.sessions.token(ctx, key)
		switch {
		case errors.Is(err, errAway):
			none = err // the others may be remembered
		case err == nil:
			if id, ok := g.o.Tokens.byHash(token); ok {
				id.session, id.sessions = key, g.sessions
				return id, nil
			}
		}
	}
	return Identity{}, none
}

// session returns the identity of a request's session.
func (g *Guard) session(w http.ResponseWriter, r *http.Request) (Identity, *RefusedError) {
	values := g.cookies(r)
	id, err := g.owner(r.Context(), values)
	switch {
	case err == nil:
		return id, nil
	case errors.Is(err, errAway):
		return Identity{}, errRedis
	case len(values) > 0:
		g.setCookie(w, r, "", -1)
	}
	return Identity{}, errNeeded
}

// errRedis is the refusal while sessions cannot be kept.
var errRedis = &RefusedError{
	Status:     http.StatusServiceUnavailable,
	Message:    "Redis cannot be reached or takes no writes; signing in needs it",
	RetryAfter: awayFor,
}

// secure reports whether people reach this server by TLS, which something in front of it
// ends. A client that claims it falsely gets a cookie of no use.
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

// cookies are the values of the request's cookies that could be ours.
func (g *Guard) cookies(r *http.Request) []string {
	var out []string
	for _, c := range r.CookiesNamed(g.cookieName(r)) {
		if len(c.Value) == cookieLength && len(out) < maxCookies && !slices.Contains(out, c.Value) {
			out = append(out, c.Value)
		}
	}
	return out
}

// setCookie sets the cookie, or takes it back where maxAge, in seconds, is below 0.
func (g *Guard) setCookie(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS, as on this machine alone, a Secure cookie would not come back
		Name: g.cookieName(r), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: g.secure(r),
		SameSite: http.SameSiteLaxMode, // links in alerts must arrive signed in
	})
}
