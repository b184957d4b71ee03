package access

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/webserver"
)

// GuardOptions configure a Guard.
type GuardOptions struct {
	// Tokens are the valid ones. Nil: there are none, and every request is by
	// [Local]; see [CheckAddress].
	Tokens *Tokens
	// Redis keeps the sessions. It is needed with Tokens only.
	Redis redis.UniversalClient
	// Namespace is the prefix of their keys. Default: store.DefaultNamespace.
	Namespace string
	// PublicURL is PUBLIC_URL, the address that people use; empty if there is none.
	PublicURL string
	// Logger gets the audit of signing in and out, and what is refused.
	// Default: slog.Default().
	Logger *slog.Logger
	// PageError answers a request for a page with an error; message is one sentence
	// without markup. Default: a plain page.
	PageError func(w http.ResponseWriter, r *http.Request, status int, message string)
	// LoginPath is where people sign in. Default "/login".
	LoginPath string
	// Now is the clock of sessions and limits. Default: time.Now.
	Now func() time.Time
}

// Guard lets requests pass, or not. Its methods may be called by many goroutines.
type Guard struct {
	o        GuardOptions
	cross    *http.CrossOriginProtection
	public   *url.URL // nil if there is none
	wrong    *limiter
	sessions *sessions
}

// NewGuard returns a Guard. Errors: PublicURL is not a URL.
func NewGuard(o GuardOptions) (*Guard, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.LoginPath == "" {
		o.LoginPath = "/login"
	}
	if o.PageError == nil {
		o.PageError = plainPage
	}
	g := &Guard{
		o: o, cross: http.NewCrossOriginProtection(),
		wrong:    &limiter{now: o.Now},
		sessions: newSessions(o.Redis, store.Namespace(o.Namespace), o.Now),
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("access: PUBLIC_URL %q is no URL", o.PublicURL)
		}
		g.public = u
		// A proxy may give us another Host than the one that browsers send as Origin.
		if err := g.cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
			return nil, fmt.Errorf("access: PUBLIC_URL: %w", err)
		}
	}
	return g, nil
}

// Open reports whether there are no tokens: then every request is by [Local].
func (g *Guard) Open() bool { return g.o.Tokens == nil }

// API passes requests on with their identity in the context, by bearer token or by
// session. Others are answered with a problem: 401, 403 where another site is behind
// it, 421 where another name than that of this server was asked for, 429 where an
// address sends one wrong token after the other.
func (g *Guard) API(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, r.Header.Values("Authorization"))
		if err != nil {
			refusal := refusalOf(err)
			refusal.header(w.Header())
			if refusal.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="tidegate"`)
			}
			webserver.Problem(w, refusal.Status, refusal.Message)
			return
		}
		next.ServeHTTP(w, g.as(r, id))
	})
}

// Pages passes requests on with their identity in the context. Without a session a browser is
// redirected to the login, and a script gets 401; without the scope read the answer is 403.
func (g *Guard) Pages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, bearers(r))
		if err == nil && !id.Can(ScopeRead) {
			err = &ScopeError{id.Name, ScopeRead}
		}
		if err == nil {
			next.ServeHTTP(w, g.as(r, id))
			return
		}
		refusal := refusalOf(err)
		if refusal.Status == http.StatusUnauthorized && !byScript(r) {
			http.Redirect(w, r, g.loginURL(r), http.StatusSeeOther)
			return
		}
		refusal.header(w.Header())
		g.o.PageError(w, r, refusal.Status, refusal.Message)
	})
}

// Public passes all requests on that no other site is behind, with their identity in the
// context if it is known. It is for the login and the like.
func (g *Guard) Public(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, bearers(r))
		switch refusal := refusalOf(err); {
		case err == nil:
			r = g.as(r, id)
		case refusal.Status == http.StatusForbidden, refusal.Status == http.StatusMisdirectedRequest:
			g.o.PageError(w, r, refusal.Status, refusal.Message)
			return
		}
		if err := g.sameSite(r); err != nil {
			g.o.PageError(w, r, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// RequireAPI passes on requests with the scope; others get 403 as a problem.
func (g *Guard) RequireAPI(scope Scope, next http.Handler) http.Handler {
	return require(scope, next, func(w http.ResponseWriter, _ *http.Request, refusal *RefusedError) {
		webserver.Problem(w, refusal.Status, refusal.Message)
	})
}

// RequirePage passes on requests with the scope; others get a page with 403.
func (g *Guard) RequirePage(scope Scope, next http.Handler) http.Handler {
	return require(scope, next, func(w http.ResponseWriter, r *http.Request, refusal *RefusedError) {
		g.o.PageError(w, r, refusal.Status, refusal.Message)
	})
}

func require(scope Scope, next http.Handler, refuse func(http.ResponseWriter, *http.Request, *RefusedError)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Check(r.Context(), scope); err != nil {
			refuse(w, r, refusalOf(err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// as returns the request with its identity.
func (g *Guard) as(r *http.Request, id Identity) *http.Request {
	webserver.SetName(r.Context(), id.Name)
	return r.WithContext(With(r.Context(), id))
}

// bearers are the headers of a request for a page that are about a token of ours.
// Others are for whatever stands in front of us, which may pass them on.
func bearers(r *http.Request) []string {
	var out []string
	for _, value := range r.Header.Values("Authorization") {
		if scheme, _, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
			out = append(out, value)
		}
	}
	return out
}

// identify returns the identity of a request, by its headers Authorization if there are any
// that count. The error is made a refusal by refusalOf.
func (g *Guard) identify(w http.ResponseWriter, r *http.Request, authorization []string) (Identity, error) {
	if g.Open() {
		if err := g.ownName(r); err != nil {
			return Identity{}, err
		}
		return Local, g.sameSite(r)
	}
	if len(authorization) > 0 {
		// No other site can make a browser send a token, so it needs no further look.
		return g.bearer(r, authorization)
	}
	id, err := g.session(w, r)
	if err != nil {
		return Identity{}, err
	}
	return id, g.sameSite(r)
}

// bearer returns the identity of a request's token.
func (g *Guard) bearer(r *http.Request, values []string) (Identity, error) {
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) == 1 && strings.EqualFold(scheme, "Bearer") {
		if id, ok := g.o.Tokens.Lookup(strings.TrimSpace(token)); ok {
			return id, nil
		}
	}
	return Identity{}, g.wrongToken(r, "the token is not known, or has expired")
}

// wrongToken counts a wrong token and returns the refusal. A right token is never
// refused for the wrong ones of others: behind a proxy all have one address, and
// 256 random bits cannot be guessed at any rate.
func (g *Guard) wrongToken(r *http.Request, message string) error {
	address := addressOf(r)
	after, first := g.wrong.count(address)
	if first {
		g.o.Logger.WarnContext(r.Context(), "a wrong token was sent", "address", address.String())
	}
	if after > 0 {
		return &RefusedError{Status: http.StatusTooManyRequests, Message: "too many wrong tokens from this address", RetryAfter: after}
	}
	return &RefusedError{Status: http.StatusUnauthorized, Message: message}
}

// sameSite refuses what another site makes a browser send.
func (g *Guard) sameSite(r *http.Request) error {
	if err := g.cross.Check(r); err != nil {
		return &RefusedError{Status: http.StatusForbidden, Message: "the request comes from another site"}
	}
	return nil
}

// ownName refuses requests for a name that is not this machine's. Without tokens a page
// from anywhere could otherwise have its own name lead here and speak for its reader.
func (g *Guard) ownName(r *http.Request) error {
	host := hostOf(r.Host)
	if isLoopback(host) || g.public != nil && strings.EqualFold(host, g.public.Hostname()) {
		return nil
	}
	return &RefusedError{
		Status:  http.StatusMisdirectedRequest,
		Message: "without tokens this server answers to localhost and to the host of PUBLIC_URL only",
	}
}

// hostOf is a Host without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// byScript reports whether a script asks, which would take the login for what it wants.
func byScript(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode != "" && mode != "navigate" || r.Header.Get("X-Requested-With") != ""
}

// loginURL is where to sign in, and then come back.
func (g *Guard) loginURL(r *http.Request) string {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Path == "/" && r.URL.RawQuery == "" {
		return g.o.LoginPath
	}
	return g.o.LoginPath + "?" + url.Values{"next": {LocalPath(r.URL.RequestURI())}}.Encode()
}

// LocalPath returns a path of this site, with its query, as given, and "/" for
// everything else: signing in never redirects to another site.
func LocalPath(path string) string {
	u, err := url.Parse(path)
	switch {
	case err != nil, u.Scheme != "", u.Host != "", u.User != nil, u.Opaque != "",
		!strings.HasPrefix(path, "/"), strings.HasPrefix(path, "//"), strings.Contains(path, `\`),
		strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f }), len(path) > 2048:
		return "/"
	}
	return path
}

// RefusedError says that a request, or signing in, is refused, and how to answer it.
type RefusedError struct {
	// Status of the answer.
	Status int
	// Message is a sentence for people, without what they sent.
	Message string
	// RetryAfter says when to try again; 0 where that would not help.
	RetryAfter time.Duration
}

// Error returns the message.
func (e *RefusedError) Error() string { return e.Message }

func (e *RefusedError) header(h http.Header) {
	if e.RetryAfter > 0 {
		webserver.RetryAfter(h, e.RetryAfter)
	}
}

// refusalOf returns how an error is answered.
func refusalOf(err error) *RefusedError {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused
	}
	if scope, ok := errors.AsType[*ScopeError](err); ok {
		return &RefusedError{Status: http.StatusForbidden, Message: scope.Error()}
	}
	return &RefusedError{Status: http.StatusUnauthorized, Message: "a token is needed: send it as Authorization: Bearer"}
}

// plainPage is a page with a sentence.
func plainPage(w http.ResponseWriter, _ *http.Request, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	title := html.EscapeString(http.StatusText(status))
	_, _ = io.WriteString(w, "<!doctype html><title>"+title+"</title><h1>"+title+"</h1><p>"+html.EscapeString(message)+"</p>\n")
}

// Audit logs an action: the one line that each has. attrs say to what, how often and how it ended; they hold no payload and no token.
func Audit(ctx context.Context, log *slog.Logger, action string, attrs ...slog.Attr) {
	id, _ := From(ctx)
	all := append([]slog.Attr{slog.String("action", action), slog.String("name", id.Name)}, attrs...)
	if remote := webserver.RemoteAddr(ctx); remote != "" {
		all = append(all, slog.String("address", remote))
	}
	log.LogAttrs(ctx, slog.LevelInfo, "audit", all...)
}
