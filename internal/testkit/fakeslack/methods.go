package fakeslack

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// params are the arguments of a call.
type params struct{ url.Values }

// flag returns an argument, and whether it is given.
func (p params) flag(name string) (value, given bool) {
	text := p.Get(name)
	return text == "true" || text == "1", text != ""
}

// flagPointer is nil for an argument that is not given.
func (p params) flagPointer(name string) *bool {
	value, given := p.flag(name)
	if !given {
		return nil
	}
	return &value
}

// method answers a call; the caller holds mu.
type method func(s *Slack, p params) map[string]any

var methods = map[string]method{
	"auth.test":             (*Slack).authTest,
	"chat.delete":           (*Slack).chatDelete,
	"chat.postMessage":      (*Slack).chatPost,
	"chat.update":           (*Slack).chatUpdate,
	"conversations.history": (*Slack).history,
	"conversations.info":    (*Slack).info,
	"conversations.list":    (*Slack).list,
	"conversations.replies": (*Slack).threadReplies,
}

func (s *Slack) serveAPI(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/api/")
	body, ok := fakehttp.ReadBody(w, r)
	if !ok {
		return
	}
	s.Answer(w, r, fakehttp.Call{
		Method: name, Size: len(body),
		Act: func() fakehttp.Response {
			header := http.Header{}
			doc := s.call(name, r, body, header)
			s.Change()
			return reply(0, header, doc)
		},
		Fail: func(f fakehttp.Fault) fakehttp.Response { return reply(f.Status, http.Header{}, refuse(f.Code)) },
	})
}

// call authenticates the caller and calls the method.
func (s *Slack) call(name string, r *http.Request, body []byte, header http.Header) map[string]any {
	act, ok := methods[name]
	if !ok {
		return merge(refuse("unknown_method"), map[string]any{"req_method": name})
	}
	p, err := arguments(r, body)
	if err != nil {
		return refuse("invalid_json")
	}
	token := p.Get("token")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		token = bearer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch token {
	case "":
		return refuse("not_authed")
	case s.opts.Token:
	default:
		return refuse("invalid_auth")
	}
	header.Set("X-Oauth-Scopes", strings.Join(s.opts.Scopes, ","))
	return act(s, p)
}

// arguments reads a form, a query or a JSON document.
func arguments(r *http.Request, body []byte) (params, error) {
	values := r.URL.Query()
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		form, err := url.ParseQuery(string(body))
		maps.Copy(values, form)
		return params{values}, err
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(body, &doc); err != nil {
		return params{}, fmt.Errorf("read the arguments: %w", err)
	}
	for name, raw := range doc {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		values.Set(name, text)
	}
	return params{values}, nil
}

// accept is the response to a call that took effect.
func accept(fields map[string]any) map[string]any {
	return merge(map[string]any{"ok": true}, fields)
}

// refuse is the response to a refused call.
func refuse(code string) map[string]any {
	return map[string]any{"ok": false, "error": code}
}

func reply(status int, header http.Header, doc map[string]any) fakehttp.Response {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // made of strings, numbers and JSON that was read
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	return fakehttp.Response{Status: status, Header: header, Body: text}
}

// lack returns the refusal if the token lacks the scope, or nil; the caller holds mu.
func (s *Slack) lack(scope string) map[string]any {
	if slices.Contains(s.opts.Scopes, scope) {
		return nil
	}
	return merge(refuse("missing_scope"), map[string]any{
		"needed": scope, "provided": strings.Join(s.opts.Scopes, ","),
	})
}

func (s *Slack) authTest(params) map[string]any {
	return accept(map[string]any{
		"url": "https://tidegate-fake.slack.com/", "team": "Tidegate", "user": "tidegate",
		"team_id": teamID, "user_id": BotUser, "bot_id": botID, "is_enterprise_install": false,
	})
}

// seconds is a time as the timestamp of an edit, which has no fraction.
func seconds(t time.Time) string { return fmt.Sprintf("%d.000000", t.Unix()) }
