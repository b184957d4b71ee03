package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// echoes are answers of an API that repeats the credentials of a call, %s, on its connection.
var echoes = map[string]string{
	"/body":         "HTTP/1.1 500 Broken\r\nContent-Type: text/plain\r\n\r\nno %s",
	"/limited":      "HTTP/1.1 429 Slow Down\r\nRetry-After: 1\r\nX-RateLimit-Reset: %[1]s\r\n\r\nno %[1]s",
	"/unauthorized": "HTTP/1.1 401 No\r\nWWW-Authenticate: %[1]s\r\n\r\nno %[1]s",
	"/redirect":     "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/?token=%[1]s\r\n\r\nno %[1]s",
	"/status":       "HTTP/1.1 %s\r\n\r\n",
	"/header":       "HTTP/1.1 200 OK\r\nno %s\r\n\r\n",
	"/name":         "HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n",
	"/no-http":      "%s\r\n\r\n",
	"/broken":       "HTTP/1.1 500 Broken\r\nContent-Length: 1000\r\n\r\nno %s",
	"/policy":       "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nRateLimit-Policy: \"%[1]s\";q=5;w=60, \"b\";q=9;w=3600\r\nRateLimit: \"%[1]s\";r=3;t=60, \"b\";r=2;t=3600\r\n\r\n",
	"/more":         "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}no %s\r\n",
}

// However an API repeats the credentials of a call, they are nowhere that people read.
func TestCredentialsStayOutOfSight(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sent := strings.TrimPrefix(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "Basic ")
		if sent == "" {
			sent = r.URL.Query().Get("token")
		}
		if plain, err := base64.StdEncoding.DecodeString(sent); err == nil && strings.HasPrefix(string(plain), canary) {
			sent = string(plain)
		}
		if !strings.HasPrefix(sent, canary) {
			t.Errorf("called with %q", sent)
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = fmt.Fprintf(conn, echoes[r.URL.Path], sent)
		if r.URL.Path == "/more" { // the client reads it on an idle connection
			_, _ = io.Copy(io.Discard, conn)
		}
	}))
	defer api.Close()
	tokenServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"%[1]s-access/a+b","refresh_token":"%[1]s-refreshed","token_type":"bearer","expires_in":3600}`, canary)
	}))
	defer tokenServer.Close()
	file := func(token string) string {
		path := filepath.Join(t.TempDir(), "tokens.json")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// A key for each answer: its breaker holds no other job.
	tokens := func(token string) string {
		all := map[string]string{}
		for path := range echoes {
			all[path[1:]] = token
		}
		text, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		return file(string(text))
	}
	delete(f.env, "DESTINATION_0_AUTH_TOKEN")
	f.env["LOG_LEVEL"], f.env["CIRCUIT_BREAKER_COOLDOWN_MS"], f.env["CIRCUIT_BREAKER_OUTAGE_THRESHOLD"] = "debug", "200", "0"
	names := []string{}
	for i, with := range []map[string]string{
		{"AUTH_TOKENS_FILE": tokens(canary + "-of/one+1")},
		{"AUTH_TOKENS_FILE": tokens(canary + "-of/one+1"), "AUTH_QUERY": "token"},
		{"AUTH_TOKENS_FILE": tokens(canary + "-user:" + canary + "-password"), "AUTH_SCHEME": "Basic"},
		{"AUTH_TOKEN_FILE": file(canary + "-of-all")},
		{"OAUTH_TOKEN_URL": tokenServer.URL, "OAUTH_CLIENT_ID": "tidegate", "OAUTH_CLIENT_SECRET": canary + "-client"},
		{"OAUTH_TOKEN_URL": tokenServer.URL, "OAUTH_CLIENT_ID": "tidegate", "OAUTH_REFRESH_TOKENS_FILE": tokens(canary + "-refresh")},
	} {
		prefix := "DESTINATION_" + strconv.Itoa(i)
		names = append(names, f.dest+"-"+strconv.Itoa(i))
		f.env[prefix+"_NAME"], f.env[prefix+"_URL"] = names[i], api.URL
		for name, value := range with {
			f.env[prefix+"_"+name] = value
		}
	}
	w := f.begin()
	redistest.Await(t, 2*time.Minute, "the worker serves all", func() bool { return strings.Count(w.log.String(), `"publishing"`) == len(names) })
	client, err := jobs.NewClient(f.rdb, jobs.WithDestinations(names...))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for path := range echoes {
		for _, name := range names {
			job, err := client.Enqueue(t.Context(), jobs.New(name, nil, jobs.Key(path[1:]), jobs.Path(path)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, job.ID)
		}
	}
	redistest.Await(t, 2*time.Minute, "each job was called", func() bool {
		for _, id := range ids {
			j, err := client.Get(t.Context(), id)
			if err != nil || j.LastError == "" && j.Response == nil {
				return false
			}
		}
		return true
	})
	redistest.Await(t, time.Minute, "what followed answers was read", func() bool {
		return strings.Contains(w.log.String(), "Unsolicited response") // of others the connection may be in use
	})
	f.checkText("the log", w.log.String())
	f.checkRedis()
	status, metrics := w.ask("/metrics")
	if status != http.StatusOK || !strings.Contains(metrics, names[0]) {
		t.Errorf("/metrics answered %d %s", status, metrics)
	}
	f.checkText("metrics", metrics)
	const more = `"msg":"a library","detail":"Unsolicited response received on idle HTTP channel starting with \"…\"`
	if log := w.log.String(); !strings.Contains(log, more) {
		t.Errorf("the log has not %s", more)
	}
}
