package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeoauth"
	"github.com/tidegate/tidegate/internal/test/testkit/fakepager"
	"github.com/tidegate/tidegate/internal/test/testkit/fakeslack"
	"github.com/tidegate/tidegate/jobs"
)

// art is an API like DeviantArt's: it takes the access tokens of a token server and uploads, publishes
// each of them, and lets a user make a few calls at a time.
type art struct {
	*fleet
	oauth *fakeoauth.Fake
	file  string // of refresh tokens

	mu        sync.Mutex
	refused   map[string]int         // by token
	calls     map[string][]time.Time // of a user
	uploads   []string               // users; the id of an item is its index
	published map[int]int            // by item
	limited   int
}

func newArt(f *fleet, lifetime time.Duration, users ...string) *art {
	t := f.t
	t.Helper()
	a := &art{
		fleet: f, oauth: fakeoauth.New(fakeoauth.Options{Lifetime: lifetime}), file: filepath.Join(t.TempDir(), "refresh.json"),
		refused: map[string]int{}, calls: map[string][]time.Time{}, published: map[int]int{},
	}
	tokenServer, err := a.oauth.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.oauth.Close() })
	api := httptest.NewServer(http.StripPrefix("/api/v1/oauth2", a))
	t.Cleanup(api.Close)
	all := map[string]string{}
	for _, user := range users {
		all[user] = a.oauth.Grant(user)
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(a.file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(a.env, "DESTINATION_0_AUTH_TOKEN")
	maps.Copy(a.env, map[string]string{
		"DESTINATION_0_PRESET":                    "deviantart",
		"DESTINATION_0_URL":                       api.URL + "/api/v1/oauth2",
		"DESTINATION_0_OAUTH_TOKEN_URL":           tokenServer + "/token",
		"DESTINATION_0_OAUTH_CLIENT_ID":           fakeoauth.ClientID,
		"DESTINATION_0_OAUTH_CLIENT_SECRET":       fakeoauth.ClientSecret,
		"DESTINATION_0_OAUTH_REFRESH_TOKENS_FILE": a.file,
		"CREDENTIALS_KEY":                         "cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=",
	})
	return a
}

// A user may make userCalls calls within userWindow.
const (
	userCalls  = 4
	firstItem  = 3141592653589793
	userWindow = 300 * time.Millisecond
)

func (a *art) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	user, ok := a.oauth.User(r)
	file, _, err := r.FormFile("file")
	item, itemErr := strconv.Atoi(r.FormValue("itemid"))
	a.mu.Lock()
	defer a.mu.Unlock()
	if !ok {
		a.refused[r.Header.Get("Authorization")]++
		answer(http.StatusUnauthorized, `{"error":"invalid_token","error_description":"Expired oAuth2 user token.","status":"error"}`)
		return
	}
	now := time.Now()
	a.calls[user] = slices.DeleteFunc(a.calls[user], func(at time.Time) bool { return now.Sub(at) > userWindow })
	if len(a.calls[user]) >= userCalls {
		a.limited++
		answer(http.StatusTooManyRequests, `{"error":"user_api_threshold","error_description":"User request limit reached.","status":"error"}`)
		return
	}
	a.calls[user] = append(a.calls[user], now)
	switch r.URL.Path {
	case "/stash/submit":
		if content, readErr := readAll(file, err); readErr != nil || content != "png" {
			answer(http.StatusBadRequest, `{"error":"invalid_request","error_description":"file is required","status":"error"}`)
			return
		}
		a.uploads = append(a.uploads, user)
		answer(http.StatusOK, fmt.Sprintf(`{"status":"success","itemid":%d}`, firstItem+len(a.uploads)-1))
	case "/stash/publish":
		if item -= firstItem; itemErr != nil || item < 0 || item >= len(a.uploads) || a.uploads[item] != user {
			answer(http.StatusBadRequest, `{"error":"invalid_request","error_description":"no such item","status":"error"}`)
			return
		}
		a.published[item]++
		answer(http.StatusOK, `{"status":"success","deviationid":"x"}`)
	}
}

func readAll(f io.Reader, err error) (string, error) {
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(f)
	return string(content), err
}

// Two hundred works of twenty users with tokens of seconds, each uploaded and published by a child
// job that has the item's id from the answer to its parent, of whom one has withdrawn the consent:
// the works of the others are published once, that user's wait with the reason, without a
// refused call, and one message says so.
func TestRevokedUser(t *testing.T) {
	t.Parallel()
	const revoked = "user-07"
	var users []string
	for i := range 20 {
		users = append(users, fmt.Sprintf("user-%02d", i))
	}
	alerts := newAlerting(t, fakeslack.Options{}, fakepager.Options{})
	a := newArt(alerts.fleet, 3*time.Second, users...)
	alerts.set(map[string]string{
		"CIRCUIT_BREAKER_COOLDOWN_MS": "800", "CIRCUIT_BREAKER_MAX_COOLDOWN_MS": "3000", "CIRCUIT_BREAKER_FAILURE_THRESHOLD": "1",
	})
	a.oauth.Revoke(revoked)
	alerts.startWorkers(3)
	uploads, publishes := map[string][]string{}, map[string][]string{} // by user
	total := 0
	for _, works := range []int{4, 3, 3} {
		var specs []*jobs.Spec
		var of []string
		for _, user := range users {
			for range works {
				total++
				id := fmt.Sprintf("work-%d", total)
				item := map[string]any{"itemid": "{{ parents.upload.itemid }}"}
				specs = append(specs, jobs.New(a.dest, map[string]any{"title": id, "file": jobs.File{Filename: "a.png", ContentType: "image/png", Content: []byte("png")}},
					jobs.ID(id+":upload"), jobs.Key(user), jobs.Path("/stash/submit"), jobs.Encode(jobs.EncodingMultipart)),
					jobs.New(a.dest, item, jobs.ID(id+":publish"), jobs.Key(user), jobs.Path("/stash/publish"), jobs.Encode(jobs.EncodingForm), jobs.After(id+":upload")))
				uploads[user], publishes[user] = append(uploads[user], id+":upload"), append(publishes[user], id+":publish")
				if user != revoked {
					of = append(of, id+":publish")
				}
			}
		}
		results, err := a.client.EnqueueMany(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		a.waitCompleted(of, 60*time.Second)
		<-time.After(3 * time.Second) // the tokens end
	}
	for _, id := range uploads[revoked] {
		if j := a.job(id); j.Status != jobs.Pending || j.Attempt != 0 || j.Response != nil {
			t.Errorf("%s is %s after %d retries: %s", id, j.Status, j.Attempt, j.LastError)
		}
	}
	s, err := breaker.DefaultNamespace.Get(t.Context(), a.rdb, a.dest+"/"+revoked)
	if err != nil || s.Cause != breaker.CauseCredentials || !strings.Contains(s.Reason, "invalid_grant") {
		t.Errorf("breaker %+v, %v", s, err)
	}
	renewals := 0
	for _, user := range users {
		renewals += a.oauth.Renewals(user)
	}
	a.mu.Lock()
	once := 0
	for _, n := range a.published {
		if n == 1 {
			once++
		}
	}
	if len(a.published) != 190 || once != 190 || len(a.refused) != 0 {
		t.Errorf("%d works were published, %d of them once; %d tokens were refused", len(a.published), once, len(a.refused))
	}
	t.Logf("%d renewals, %d calls were limited", renewals, a.limited)
	a.mu.Unlock()
	if calls := a.oauth.Calls(); calls != renewals+1 {
		t.Errorf("%d calls of the token server, want %d and one for the revoked user", calls, renewals)
	}
	// One alert, which pages, names the user; those of limited keys do not.
	told := func(all []fakeslack.Message) (of int) {
		for _, m := range all {
			switch text := m.Text + string(m.Blocks); {
			case m.ThreadTS != "" || !strings.Contains(text, revoked):
			case strings.Contains(m.Text, a.dest+": 1 user must sign in again ("+revoked+")"):
				of++
			default:
				t.Errorf("a message about limited keys names %s: %s", revoked, m.Text)
			}
		}
		return of
	}
	if n := told(alerts.slack.Messages()); n != 1 || len(alerts.pager.Open()) != 1 {
		t.Errorf("%d messages and %d pages about the user, want one of each", n, len(alerts.pager.Open()))
	}

	// The user signs in again: a new refresh token in the file, and all is published.
	all := map[string]string{}
	text, err := os.ReadFile(a.file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	all[revoked] = a.oauth.Grant(revoked)
	if text, err = json.Marshal(all); err == nil {
		err = errors.Join(os.WriteFile(a.file+".next", text, 0o600), os.Rename(a.file+".next", a.file))
	}
	if err != nil {
		t.Fatal(err)
	}
	a.waitCompleted(publishes[revoked], 60*time.Second)
	if n := len(alerts.pager.Incidents()); n != 1 {
		t.Errorf("%d pages, want 1", n)
	}
}
