package config

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeFile returns the path of a new file.
func writeFile(t *testing.T, content string, mode fs.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.json")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file of tokens is read at the start; what is wrong with it is told by key.
func TestTokensFileErrors(t *testing.T) {
	t.Parallel()
	const shape = `; write a JSON object of keys and tokens: {"alice": "TOKEN", "bob": "TOKEN"}`
	dir := t.TempDir()
	for _, tt := range []struct {
		name, path string
		want       []string
	}{
		{"missing", filepath.Join(dir, "x"), []string{"cannot be read: no such file or directory; check the file and its permissions"}},
		{"a directory", dir, []string{"cannot be read: is a directory; check the file and its permissions"}},
		{"empty", writeFile(t, "\n", 0o600), []string{"is empty" + shape}},
		{"no JSON", writeFile(t, "alice=hunter2", 0o600), []string{"is not JSON: look at line 1" + shape}},
		{"no object", writeFile(t, `["hunter2"]`, 0o600), []string{"is not a JSON object" + shape}},
		{"tokens", writeFile(t, "{\n\"alice\": \"Bearer hunter2\",\n\"bob\": \"\",\n\"a key\": \"hunter2\"}", 0o600), []string{
			`line 2: the token of key "alice" holds a space, a line break or a character that is not ASCII; give the token alone, without Bearer before it`,
			`line 3: the token of key "bob" is empty; give it a value, or take the key out`,
			`line 4: "a key" is not a valid key; use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(with("DESTINATION_0_AUTH_TOKEN=plain", "DESTINATION_0_AUTH_TOKENS_FILE="+tt.path))
			if err == nil {
				t.Fatal("no error")
			}
			var want []string
			for _, line := range tt.want {
				want = append(want, fmt.Sprintf("DESTINATION_0_AUTH_TOKENS_FILE: file %q: %s", tt.path, line))
			}
			if diff := cmp.Diff(strings.Join(want, "\n"), err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Error("the error shows a token")
			}
		})
	}
}

func TestTokensFileWarnings(t *testing.T) {
	t.Parallel()
	open, none := writeFile(t, `{"alice":"hunter2"}`, 0o644), writeFile(t, "{}", 0o600)
	_, warnings := load(t,
		"DESTINATION_0_NAME=a", "DESTINATION_0_URL=http://api.example.com", "DESTINATION_0_AUTH_TOKENS_FILE="+open,
		"DESTINATION_1_NAME=b", "DESTINATION_1_URL=https://api.example.com", "DESTINATION_1_AUTH_TOKENS_FILE="+none)
	want := []string{
		fmt.Sprintf("DESTINATION_0_AUTH_TOKENS_FILE: file %q can be read by others (mode 0644): chmod 600 it, or set defaultMode: 0400 where it is a Secret of Kubernetes", open),
		"DESTINATION_0_URL: is http: the token of this destination is sent unencrypted; use https if the API has it",
		fmt.Sprintf("DESTINATION_1_AUTH_TOKENS_FILE: file %q holds no token: every job with a key fails until it does", none),
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
