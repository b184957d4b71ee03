package access

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/serve/webserver"
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
	// without markup. It is required for pages.
	PageError func(w http.ResponseWriter, r *http.Request, status int, message string)
	// Now is the clock of sessions and limits. Default: time.Now.
	Now func() time.Time
}

// loginPath is where people sign in.
const loginPath = "/login"

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
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &Guard{
		o: o, cross: http.NewCrossOriginProtection(),
		wrong:    &limiter{now: o.Now},
		sessions: newSessions(o.Redis, store.Namespace(o.Namespace), o.Now),
	}
	if o.PublicURL != "" {
		u, err := url.Parse(o.PublicURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("access: PUBLIC_URL %q is not a URL", o.PublicURL)
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

// API passes requests on with their identity in the context, by bearer token or by session. Other requests are
// answered with a problem: 401; 403 if another site made the request; 421 if it asks for a host that is not this
// server; 429 if its address sends one wrong token after the other.
func (g *Guard) API(next http.Handler) http.Handler { return g.APIWith(next, webserver.Problem) }

// APIWith is [Guard.API] with another form of errors.
func (g *Guard) APIWith(next http.Handler, problem func(w http.ResponseWriter, status int, detail string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, r.Header.Values("Authorization"))
		if err != nil {
			webserver.RetryAfter(w.Header(), err.RetryAfter)
			if err.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="tidegate"`)
			}
			problem(w, err.Status, err.Message)
			return
		}
		next.ServeHTTP(w, g.as(r, id))
	})
}

// Pages passes requests on with their identity in the context. Without a session a browser is
// redirected to the login, and a script gets 401; without the scope read, and for confined tokens, the answer is 403.
func (g *Guard) Pages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, bearers(r))
		if err == nil && !id.Can(ScopeRead) {
			err = lacks(id.Name, ScopeRead)
		} else if err == nil {
			err = CheckConfined(id)
		}
		switch {
		case err == nil:
			next.ServeHTTP(w, g.as(r, id))
		case err.Status == http.StatusUnauthorized && !byScript(r):
			http.Redirect(w, r, g.loginURL(r), http.StatusSeeOther)
		default:
			webserver.RetryAfter(w.Header(), err.RetryAfter)
			g.o.PageError(w, r, err.Status, err.Message)
		}
	})
}

// Public passes all requests on that no other site is behind, with their identity in the
// context if it is known. It is for the login and the like.
func (g *Guard) Public(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := g.identify(w, r, bearers(r))
		if err == nil {
			r = g.as(r, id)
		}
		if err == nil || err.Status != http.StatusMisdirectedRequest {
			err = g.sameSite(r) // that it is not known does not matter
		}
		if err != nil {
			g.o.PageError(w, r, err.Status, err.Message)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Callbacks passes all requests on: what they ask for needs a token that they carry in the path. A handler that does not
// know it calls [WrongCallback].
func (g *Guard) Callbacks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wrong := func() *RefusedError {
			return g.wrongToken(r, "")
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), wrongKey{}, wrong)))
	})
}

type wrongKey struct{}

// WrongCallback counts a request with a token that is not known. It returns how long to wait, above 0 for an address that
// sends one wrong token after the other.
func WrongCallback(ctx context.Context) (after time.Duration) {
	if wrong, ok := ctx.Value(wrongKey{}).(func() *RefusedError); ok {
		return wrong().RetryAfter
	}
	return 0
}

// RequireAPI passes on requests with the scope of tokens that are not confined; others get 403 as a problem.
func (g *Guard) RequireAPI(scope Scope, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, _ := From(r.Context())
		if err := cmp.Or(Check(r.Context(), scope), CheckConfined(id)); err != nil {
			webserver.Problem(w, err.Status, err.Message)
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
// that count.
func (g *Guard) identify(w http.ResponseWriter, r *http.Request, authorization []string) (Identity, *RefusedError) {
	switch {
	case g.Open():
		if err := g.ownName(r); err != nil {
			return Identity{}, err
		}
		return Local, g.sameSite(r)
	case len(authorization) > 0:
		// No other site can make a browser send a token, so it needs no further look.
		return g.bearer(r, authorization)
	}
	id, err := g.session(w, r)
	if err == nil {
		err = g.sameSite(r)
	}
	return id, err
}

// bearer returns the identity of a request's token.
func (g *Guard) bearer(r *http.Request, values []string) (Identity, *RefusedError) {
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
func (g *Guard) wrongToken(r *http.Request, message string) *RefusedError {
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
func (g *Guard) sameSite(r *http.Request) *RefusedError {
	if err := g.cross.Check(r); err != nil {
		return &RefusedError{Status: http.StatusForbidden, Message: "the request comes from another site"}
	}
	return nil
}

// ownName refuses requests for a name that is not this machine's. Without tokens a page
// from anywhere could otherwise have its own name lead here and speak for its reader.
func (g *Guard) ownName(r *http.Request) *RefusedError {
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

// byScript reports whether a script sends the request: a script would take the login page for the response.
func byScript(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return mode != "" && mode != "navigate" || r.Header.Get("X-Requested-With") != ""
}

// loginURL is where to sign in, and then come back.
func (g *Guard) loginURL(r *http.Request) string {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.URL.Path == "/" && r.URL.RawQuery == "" {
		return loginPath
	}
	return loginPath + "?" + url.Values{"next": {LocalPath(r.URL.RequestURI())}}.Encode()
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

// errNeeded is the refusal of a request without a token or session.
var errNeeded = &RefusedError{Status: http.StatusUnauthorized, Message: "a token is needed: send it as Authorization: Bearer"}

// lacks is the refusal of a token without a scope.
func lacks(name string, scope Scope) *RefusedError {
	return &RefusedError{Status: http.StatusForbidden, Message: fmt.Sprintf("the token %q lacks the scope %q", name, string(scope))}
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
