package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// fakeOfSDKs answers as the APIs of five SDKs do, and counts the calls of each.
type fakeOfSDKs struct {
	mu    sync.Mutex
	calls map[string]int
}

func (f *fakeOfSDKs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	f.mu.Lock()
	f.calls[api]++
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch api {
	case "openai":
		select { // longer than its caller waits
		case <-time.After(2500 * time.Millisecond):
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}`)
	case "github":
		page := max(1, len(r.URL.Query().Get("page")))
		if page < 3 {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s/github/repos/o/r/issues?page=%s>; rel="next"`, r.Host, strings.Repeat("1", page+1)))
		}
		_, _ = io.WriteString(w, `[{"id":1},{"id":2}]`)
	case "stripe":
		_, _ = io.WriteString(w, `{"id":"cus_1","object":"customer"}`)
	case "slack":
		_, _ = io.WriteString(w, `{"ok":true,"ts":"1.2"}`)
	default:
		_, _ = io.WriteString(w, `{"id":"m1"}`)
	}
}

func (f *fakeOfSDKs) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// SDKs of five APIs call them through the gateway: one that gives up makes no second call, pages are followed, errors
// of the gateway are errors, and nothing is posted later of what was refused.
func TestGatewaySDKs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("installs packages")
	}
	folder := npmInstall(t, "testdata/sdks")
	fake := &fakeOfSDKs{calls: map[string]int{}}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	f.dest = "discord"
	for i, name := range []string{"discord", "openai", "github", "stripe", "slack"} {
		prefix := fmt.Sprintf("DESTINATION_%d_", i)
		f.env[prefix+"NAME"], f.env[prefix+"URL"], f.env[prefix+"CONCURRENCY"], f.env[prefix+"GATEWAY_WAIT"] = name, server.URL+"/"+name, "30", "60s"
	}
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := f.token(file, "shop", "enqueue")
	f.env["API_TOKENS_FILE"], f.env["LISTEN_ADDR"] = file, "127.0.0.1:0"
	api := f.apiInstance()
	f.start()
	run := func(step string) map[string]any {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", "sdks.mjs")
		cmd.Dir, cmd.Stderr = folder, os.Stderr
		cmd.Env = append(os.Environ(), "GATEWAY="+api.url+"/to", "TOKEN="+token, "STEP="+step)
		out, err := cmd.Output()
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Errorf("%s: %v\n%s", step, err, out)
		}
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		return got
	}
	if d := cmp.Diff(map[string]any{
		"openai": "hi", "octokit": 6.0, "stripe": "cus_1", "stripeWrongToken": "StripeAuthenticationError 401", "slack": "1.2", "discord": "m1",
	}, run("healthy")); d != "" {
		t.Error(d)
	}
	want := map[string]int{"openai": 20, "github": 3, "stripe": 1, "slack": 1, "discord": 1}
	if d := cmp.Diff(want, fake.counts()); d != "" {
		t.Error(d)
	}
	for _, name := range []string{"discord", "openai"} {
		if _, stderr, code := f.tidegate("breaker", "trip", name); code != 0 {
			t.Fatal(stderr)
		}
	}
	t.Logf("breakers open: %v", run("open"))
	redistest.Await(t, leastPatience, "no job is left", func() bool {
		stats, err := f.client.Stats(context.Background(), "")
		if err != nil {
			return false
		}
		left := 0
		for _, s := range stats {
			left += s.Counts[jobs.Pending] + s.Counts[jobs.Running]
		}
		return left == 0
	})
	if d := cmp.Diff(want, fake.counts()); d != "" {
		t.Error(d)
	}
}
