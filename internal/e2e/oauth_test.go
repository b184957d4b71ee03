package e2e

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/fakehttp"
	"github.com/tidegate/tidegate/internal/fakeoauth"
	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// signedIn is an API that takes the access tokens of a token server.
type signedIn struct {
	*fleet
	oauth *fakeoauth.Fake
	file  string

	mu       sync.Mutex
	accepted map[string]int // by idempotency key
	refused  map[string]int // by token
}

func newSignedIn(t *testing.T, lifetime time.Duration, users ...string) *signedIn {
	t.Helper()
	s := &signedIn{
		fleet: newFleet(t, redistest.Start(t), fakeapi.Options{}), oauth: fakeoauth.New(fakeoauth.Options{Lifetime: lifetime}),
		file: filepath.Join(t.TempDir(), "refresh.json"), accepted: map[string]int{}, refused: map[string]int{},
	}
	tokenServer, err := s.oauth.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.oauth.Close() })
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	all := map[string]string{}
	for _, user := range users {
		all[user] = s.oauth.Grant(user)
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(s.file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(s.env, "DESTINATION_0_AUTH_TOKEN")
	maps.Copy(s.env, map[string]string{
		"DESTINATION_0_URL":                       api.URL,
		"DESTINATION_0_OAUTH_TOKEN_URL":           tokenServer + "/token",
		"DESTINATION_0_OAUTH_CLIENT_ID":           fakeoauth.ClientID,
		"DESTINATION_0_OAUTH_CLIENT_SECRET":       fakeoauth.ClientSecret,
		"DESTINATION_0_OAUTH_REFRESH_TOKENS_FILE": s.file,
		"CREDENTIALS_KEY":                         "cmVwbGFjZS1tZS1yZXBsYWNlLW1lLXJlcGxhY2UtbWU=",
		"CIRCUIT_BREAKER_COOLDOWN_MS":             "60000",
	})
	return s
}

func (s *signedIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, ok := s.oauth.User(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		s.refused[r.Header.Get("Authorization")]++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.accepted[r.Header.Get("Idempotency-Key")]++
}

// Access tokens of seconds, three processes, jobs all the time: each token is renewed once, no
// job fails, and no call has a token that has ended.
func TestOneRenewalInTheFleet(t *testing.T) {
	t.Parallel()
	s := newSignedIn(t, 4*time.Second, "alice")
	workers := []*worker{s.start(), s.start(), s.start()}
	var ids []string
	for until := time.Now().Add(14 * time.Second); time.Now().Before(until); {
		batch := s.enqueue(20, jobs.Key("alice"))
		s.waitCompleted(batch, 30*time.Second)
		ids = append(ids, batch...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if n := s.accepted[id]; n != 1 {
			t.Errorf("job %s was accepted %d times", id, n)
		}
	}
	// 14 s of tokens that are renewed after 3.2 s, and at the latest when they end.
	renewals := s.oauth.Renewals("alice")
	if calls := s.oauth.Calls(); calls != renewals || calls < 4 || calls > 6 {
		t.Errorf("%d calls of the token server gave %d tokens in 14 s, want 4 to 6", calls, renewals)
	}
	if len(s.refused) > 0 {
		t.Errorf("calls with tokens that have ended: %v", s.refused)
	}
	for _, w := range workers {
		if text := w.log.String(); strings.Contains(text, "access-") || strings.Contains(text, "refresh-alice") || strings.Contains(text, fakeoauth.ClientSecret) {
			t.Errorf("the log has a secret:\n%s", text)
		}
	}
}

// A process that is killed while it renews a token: another one does when its lease ends. The
// refresh token is not lost, whether or not the server has replaced it already.
func TestKilledRefresher(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fakehttp.Fault{"before it is replaced": fakehttp.Hanging(), "after it is replaced": fakehttp.Hanging().AfterActing()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSignedIn(t, time.Hour, "alice")
			s.oauth.SetFault(fault.Times(1))
			killed := s.start()
			ids := s.enqueue(1, jobs.Key("alice"))
			redistest.Await(t, 20*time.Second, "the renewal begins", func() bool { return s.oauth.Calls() == 1 })
			killed.stop(syscall.SIGKILL)
			began := time.Now()
			s.start()
			s.start()
			ids = append(ids, s.enqueue(5, jobs.Key("alice"))...)
			s.waitCompleted(ids[1:], 40*time.Second)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("the renewal was taken over after %s", took)
			}
			if n := s.oauth.Calls(); n != 2 {
				t.Errorf("%d calls of the token server, want that of the killed process and one more", n)
			}
			// The rotated refresh token is the one that counts from here on.
			s.oauth.RevokeAccess("alice")
			s.waitCompleted(s.enqueue(5, jobs.Key("alice")), 40*time.Second)
		})
	}
}
