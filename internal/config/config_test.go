package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ignoreEntries leaves out what Print prints; it has tests of its own.
var ignoreEntries = cmpopts.IgnoreUnexported(Config{})

func load(t *testing.T, environ ...string) (*Config, []string) {
	t.Helper()
	cfg, warnings, err := Load(environ)
	if err != nil {
		t.Fatalf("Load(%q):\n%v", environ, err)
	}
	return cfg, texts(warnings)
}

func texts(warnings []Warning) []string {
	var out []string
	for _, w := range warnings {
		out = append(out, w.String())
	}
	return out
}

// one is the smallest working destination.
var one = []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items"}

func with(more ...string) []string { return append(slices.Clone(one), more...) }

func TestLoadSecretFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, redis := write("token", "hunter2\r\n\n"), write("redis", "redis://:hunter2@redis.example/1\n")
	headers := write("headers", "X-Api-Key:hunter2\n")
	empty, large := write("empty", "\n \n"), write("large", strings.Repeat("x", maxSecretFile+1))

	cfg, warnings := load(t, with("DESTINATION_0_AUTH_TOKEN_FILE="+token, "DESTINATION_0_AUTH_TOKEN=",
		"REDIS_URL_FILE="+redis, "DESTINATION_0_HEADERS_FILE="+headers)...)
	if got := cfg.Destinations[0].AuthToken.Reveal(); got != "hunter2" {
		t.Errorf("token %q", got)
	}
	if got := cfg.RedisURL.Reveal(); got != "redis://:hunter2@redis.example/1" {
		t.Errorf("Redis URL %q", got)
	}
	if got := cfg.Destinations[0].Headers.Get("X-Api-Key"); got != "hunter2" {
		t.Errorf("header %q", got)
	}
	if warnings != nil {
		t.Errorf("warnings %q", warnings)
	}

	missing := filepath.Join(dir, "missing")
	_, _, err := Load([]string{
		"DESTINATION_0_NAME=a", "DESTINATION_0_URL=https://a.example", "DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_AUTH_TOKEN_FILE=" + token,
		"DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://a.example", "DESTINATION_1_AUTH_TOKEN_FILE=" + missing,
		"DESTINATION_2_NAME=c", "DESTINATION_2_URL=https://a.example", "DESTINATION_2_AUTH_TOKEN_FILE=" + empty,
		"DESTINATION_3_NAME=d", "DESTINATION_3_URL=https://a.example", "DESTINATION_3_AUTH_TOKEN_FILE=" + dir,
		"DESTINATION_4_NAME=e", "DESTINATION_4_URL=https://a.example", "DESTINATION_4_URL_FILE=" + token,
		"REDIS_URL_FILE=" + large,
	})
	quoted := func(path string) string { return `"` + path + `"` }
	want := strings.Join([]string{
		"DESTINATION_0_AUTH_TOKEN: is set, and so is DESTINATION_0_AUTH_TOKEN_FILE; unset one of the two",
		"DESTINATION_1_AUTH_TOKEN_FILE: cannot read file " + quoted(missing) + ": no such file or directory; check the file and its permissions",
		"DESTINATION_2_AUTH_TOKEN_FILE: file " + quoted(empty) + " is empty; check the file and its permissions",
		"DESTINATION_3_AUTH_TOKEN_FILE: cannot read file " + quoted(dir) + ": is a directory; check the file and its permissions",
		"DESTINATION_4_URL_FILE: is not a variable of Tidegate; only a secret can come from a file: set DESTINATION_4_URL",
		"REDIS_URL_FILE: file " + quoted(large) + " is larger than 65536 bytes; check the file and its permissions",
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRequireDestinations(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t)
	err := cfg.RequireDestinations()
	const want = "DESTINATION_0_NAME: is not set, and no destination is configured; set DESTINATION_0_NAME and DESTINATION_0_URL, or DESTINATIONS_FILE"
	if err == nil || err.Error() != want {
		t.Errorf("without destinations: %v", err)
	}
	cfg, _ = load(t, one...)
	if err := cfg.RequireDestinations(); err != nil {
		t.Errorf("with one: %v", err)
	}
	if d, ok := cfg.Destination("shop"); !ok || d.Name != "shop" {
		t.Errorf("Destination(shop) = %v, %v", d.Name, ok)
	}
	if _, ok := cfg.Destination("other"); ok {
		t.Error("Destination(other) found")
	}
}

// TestLoadIgnoresTheProcess is not parallel: it changes the process environment.
func TestLoadIgnoresTheProcess(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://elsewhere/0")
	t.Setenv("MAX_CRASHES", "7")
	cfg, _, err := Load(nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.RedisURL.Reveal() != "redis://127.0.0.1:6379/0" || cfg.MaxCrashes != 3 {
		t.Errorf("Load(nil) read the process environment: %s, %d", cfg.RedisURL.Reveal(), cfg.MaxCrashes)
	}
}
