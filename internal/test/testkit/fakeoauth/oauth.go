// Package fakeoauth is a token endpoint of OAuth 2.0 over HTTP, for tests: refresh tokens that
// rotate, access tokens of any lifetime, and users who withdraw their consent.
//
// A refresh token works until its successor has been used: so do servers that allow for a lost
// answer. Reuse after that revokes the user's tokens, as RFC 9700, section 4.14, has it.
package fakeoauth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
)

// Methods of calls, for faults and counts.
const (
	Refresh = "refresh_token"
	Client  = "client_credentials"
)

// Client's name and secret.
const (
	ClientID     = "tidegate"
	ClientSecret = "s3cret/of the+client"
)

// Options of a Fake.
type Options struct {
	// Lifetime of access tokens. Default 1 h. It is announced in whole seconds, rounded down.
	Lifetime time.Duration
	// Static refresh tokens do not rotate.
	Static bool
	// InParams takes the client's name and secret from the body only, else from the header only.
	InParams bool
}

// Fake is a token endpoint. Its methods may be called at any time.
type Fake struct {
	*fakehttp.Fake
	o Options

	mu      sync.Mutex
	n       int
	refresh map[string]*grant // by refresh token
	access  map[string]*grant // by access token
	counts  map[string]int    // renewals by user
}

// grant is a token that was given.
type grant struct {
	user     string
	previous string // the refresh token that this one replaces
	until    time.Time
	ended    bool
}

// New returns a Fake; Start makes it listen.
func New(o Options) *Fake {
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	f := &Fake{o: o, refresh: map[string]*grant{}, access: map[string]*grant{}, counts: map[string]int{}}
	f.Fake = fakehttp.New("fakeoauth", nil, f.token)
	return f
}

// Grant signs a user in and returns a refresh token.
func (f *Fake) Grant(user string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grant(user, "")
}

func (f *Fake) grant(user, previous string) string {
	f.n++
	token := fmt.Sprintf("refresh-%s-%d", user, f.n)
	f.refresh[token] = &grant{user: user, previous: previous}
	return token
}

// Revoke ends all tokens of a user.
func (f *Fake) Revoke(user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revoke(user)
}

func (f *Fake) revoke(user string) {
	f.revokeAccess(user)
	for _, g := range f.refresh {
		g.ended = g.ended || g.user == user
	}
}

// RevokeAccess ends the access tokens of a user; refresh tokens stay valid.
func (f *Fake) RevokeAccess(user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revokeAccess(user)
}

func (f *Fake) revokeAccess(user string) {
	for _, g := range f.access {
		g.ended = g.ended || g.user == user
	}
}

// User returns the user of the request's access token; ok is false unless it is valid.
func (f *Fake) User(r *http.Request) (user string, ok bool) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.access[token]
	if !bearer || g == nil {
		return "", false
	}
	return g.user, !g.ended && f.Now().Before(g.until)
}

// Renewals counts the access tokens that were given to a user, "" for the client itself.
func (f *Fake) Renewals(user string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[user]
}

// Handler of the token endpoint.
func (f *Fake) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.Answer(w, r, fakehttp.Call{
		Method: r.PostForm.Get("grant_type"),
		Act:    func() fakehttp.Response { return f.act(r, r.PostForm) },
		Fail:   func(fault fakehttp.Fault) fakehttp.Response { return refused(fault.Status, fault.Code) },
	})
}

func (f *Fake) act(r *http.Request, form url.Values) fakehttp.Response {
	id, secret := form.Get("client_id"), form.Get("client_secret")
	if !f.o.InParams {
		user, password, _ := r.BasicAuth()
		id, _ = url.QueryUnescape(user)
		secret, _ = url.QueryUnescape(password)
	}
	if id != ClientID || secret != ClientSecret {
		return refused(http.StatusUnauthorized, "invalid_client")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	user, refresh := "", form.Get("refresh_token")
	switch form.Get("grant_type") {
	case Client:
		refresh = ""
	case Refresh:
		g := f.refresh[refresh]
		if g == nil || g.ended {
			if g != nil {
				f.revoke(g.user)
			}
			return refused(http.StatusBadRequest, "invalid_grant")
		}
		user = g.user
		if previous := f.refresh[g.previous]; previous != nil {
			previous.ended = true // its successor is in use
		}
		if !f.o.Static {
			refresh = f.grant(user, refresh)
		}
	default:
		return refused(http.StatusBadRequest, "unsupported_grant_type")
	}
	f.n++
	f.counts[user]++
	access := fmt.Sprintf("access-%s-%d", user, f.n)
	f.access[access] = &grant{user: user, until: f.Now().Add(f.o.Lifetime)}
	return answer(http.StatusOK, map[string]any{
		"access_token": access, "token_type": "Bearer", "expires_in": int(f.o.Lifetime / time.Second), "refresh_token": refresh,
	})
}

func refused(status int, code string) fakehttp.Response {
	if status == 0 {
		status = http.StatusBadRequest
	}
	return answer(status, map[string]any{"error": code, "error_description": "The request was refused."})
}

func answer(status int, body map[string]any) fakehttp.Response {
	text, _ := json.Marshal(body) // strings and numbers
	return fakehttp.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: text}
}
