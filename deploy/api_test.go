package deploy_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// What workers and the API have in common is checked alike, and has the same defaults but
// where there is a reason.
func TestAPIIsLikeTheWorker(t *testing.T) {
	t.Parallel()
	var schemas struct {
		Properties struct {
			Worker, API struct{ Properties map[string]any }
		}
	}
	decodeJSON(t, chart+"values.schema.json", &schemas)
	worker, api := schemas.Properties.Worker.Properties, schemas.Properties.API.Properties
	for key, of := range api {
		if like, ok := worker[key]; ok {
			if diff := cmp.Diff(like, of); diff != "" {
				t.Errorf("values.schema.json: api.%s differs from worker.%s\n%s", key, key, diff)
			}
		}
	}
	var values struct{ Worker, API map[string]any }
	parse(t, chart+"values.yaml", &values, false)
	differ := []string{"resources", "startupProbe"} // connections take memory; a rollout waits for Redis
	for key, of := range values.API {
		if like, ok := values.Worker[key]; ok && !slices.Contains(differ, key) {
			if diff := cmp.Diff(like, of); diff != "" {
				t.Errorf("values.yaml: api.%s differs from worker.%s\n%s", key, key, diff)
			}
		}
	}
	if values.API["enabled"] != false {
		t.Errorf("the API is on unless it is turned off: %v", values.API["enabled"])
	}
	if secret := values.API["tokens"].(map[string]any)["secret"]; secret != "" {
		t.Errorf("a Secret of tokens is the default: %q", secret)
	}
}

// The trial's token is the one that the documentation names, and nothing else in
// deploy/ lets anybody in.
func TestTokenOfTheTrial(t *testing.T) {
	t.Parallel()
	const path = "demo/api/tokens.json"
	var log strings.Builder
	tokens, err := access.OpenTokens(path, access.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "the token of the trial, which is public") {
		t.Errorf("who uses it elsewhere is not warned: %s", log.String())
	}
	found := regexp.MustCompile(`tg_[A-Za-z0-9_-]+`).FindAllString(string(read(t, "../docs/containers.md")), -1)
	if len(found) == 0 {
		t.Fatal("docs/containers.md names no token")
	}
	for _, token := range found {
		if id, ok := tokens.Lookup(token); !ok || id.Name != "trial" || !id.Can(access.ScopeEnqueue) || !id.Can(access.ScopeOperate) {
			t.Errorf("docs/containers.md: %s is %q's, who may %v", token, id.Name, id.Scopes)
		}
	}
	err = filepath.WalkDir(".", func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || p == path || strings.HasSuffix(p, "_test.go") {
			return err
		}
		if regexp.MustCompile(`"hash": *"sha256:`).Match(read(t, p)) {
			t.Errorf("deploy/%s holds a token", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !json.Valid(read(t, path)) {
		t.Error("it is not JSON")
	}
}

// The composition publishes the API on this machine alone, has it ask for tokens, and
// takes those of the trial, which everybody knows, for the trial only.
func TestComposeAPI(t *testing.T) {
	t.Parallel()
	type service struct {
		Profiles    []string
		Command     []string
		Environment map[string]string
		Ports       []string
		Volumes     []any
	}
	var compose struct{ Services map[string]service }
	parse(t, "compose.yaml", &compose, false)
	want := map[string]service{}
	for name, profile := range map[string]string{"api": "api", "demo-api": "demo"} {
		want[name] = service{
			Profiles: []string{profile}, Command: []string{"api"}, Ports: []string{"127.0.0.1:${API_PORT:-8080}:8080"},
			Environment: map[string]string{
				"REDIS_URL": "redis://redis:6379/0", "LISTEN_ADDR": ":8080", "API_TOKENS_FILE": "/etc/tidegate/api/tokens.json",
				"PUBLIC_URL": "${PUBLIC_URL:-http://127.0.0.1:8080}", "GOMEMLIMIT": "460MiB",
			},
		}
	}
	trial, own := want["demo-api"], want["api"]
	trial.Volumes = []any{"${API_TOKENS:-./demo/api}:/etc/tidegate/api:ro"}
	own.Volumes = []any{map[string]any{
		"type": "bind", "source": "${API_TOKENS:-./api}", "target": "/etc/tidegate/api", "read_only": true,
		"bind": map[string]any{"create_host_path": false},
	}}
	want["demo-api"], want["api"] = trial, own
	got := map[string]service{}
	for name, of := range compose.Services {
		if _, ok := of.Environment["API_TOKENS_FILE"]; ok || name == "api" {
			got[name] = of
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("services with tokens (-want +got)\n%s", diff)
	}
}

// The units of systemd differ in what they start, not in what that may do.
func TestUnitsAreLockedDownAlike(t *testing.T) {
	t.Parallel()
	locks := func(unit string) []string {
		_, rest, found := strings.Cut(string(read(t, "systemd/"+unit)), "# ---- what it may not do ----\n")
		if !found {
			t.Fatalf("%s does not say what it may not do", unit)
		}
		return slices.DeleteFunc(strings.Split(rest, "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
	}
	if diff := cmp.Diff(locks("tidegate-worker.service"), locks("tidegate-api.service")); diff != "" {
		t.Errorf("the API's unit (-worker +api)\n%s", diff)
	}
}
