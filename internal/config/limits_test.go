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

func TestLimitErrors(t *testing.T) {
	t.Parallel()
	const (
		rates = "; use calls per time, such as 60/1h, 10/s:5 or 100/15m,5000/1d@UTC"
		hints = "; use retry-after, ratelimit, x-ratelimit, separated by commas, or none"
		rate  = " is not a rate" + rates
	)
	for _, tt := range []struct {
		name    string
		environ []string
		want    []string
	}{
		{"hint misspelled", with("DESTINATION_0_HINTS=retryafter"), []string{`DESTINATION_0_HINTS: "retryafter" holds "retryafter", which is not known; did you mean retry-after?`}},
		{"hint unknown", with("DESTINATION_0_HINTS=retry-after,x-shop-limit"), []string{`DESTINATION_0_HINTS: "retry-after,x-shop-limit" holds "x-shop-limit", which is not known` + hints}},
		{"hint empty", with("DESTINATION_0_HINTS=retry-after,"), []string{`DESTINATION_0_HINTS: "retry-after," holds "", which is not known` + hints}},
		{"none and others", with("DESTINATION_0_HINTS=retry-after,none"), []string{`DESTINATION_0_HINTS: "retry-after,none" holds none and something else; write none alone, or leave it out`}},
		{"rate without time", with("DESTINATION_0_RATE=60"), []string{`DESTINATION_0_RATE: "60"` + rate}},
		{"rate of nothing", with("DESTINATION_0_RATE=0/1h"), []string{`DESTINATION_0_RATE: "0/1h" is not a rate: it has 0 calls: want 1 to 1000000000` + rates}},
		{"one of several windows", with("DESTINATION_0_RATE=60/1h,5"), []string{`DESTINATION_0_RATE: "60/1h,5"` + rate}},
		{"month without zone", with("DESTINATION_0_RATE=5/s,60/1mo"), []string{
			`DESTINATION_0_RATE: "5/s,60/1mo" is not a rate: a month needs the zone of its calendar: want 1mo@UTC, or 31d` + rates,
		}},
		{"burst of a zone", with("DESTINATION_0_RATE=60/1h@UTC:5"), []string{
			`DESTINATION_0_RATE: "60/1h@UTC:5" is not a rate: a window of a zone takes no burst: all its calls may leave at once` + rates,
		}},
		{"a window twice", with("DESTINATION_0_KEY_RATE=60/1h,60/1h"), []string{`DESTINATION_0_KEY_RATE: "60/1h,60/1h" is not a rate: it has the window 60/1h twice` + rates}},
		{"unknown zone", with("DESTINATION_0_KEY_RATE=60/1h@Europe/Atlantis"), []string{
			`DESTINATION_0_KEY_RATE: "60/1h@Europe/Atlantis" is not a rate: the zone "Europe/Atlantis" is not known: use one such as UTC or Europe/Paris` + rates,
		}},
		{"rate in words, and a burst", with("DESTINATION_0_RATE=60 per hour", "DESTINATION_0_BURST=2"), []string{`DESTINATION_0_RATE: "60 per hour"` + rate}},
		{"burst without rate", with("DESTINATION_0_BURST=2"), []string{"DESTINATION_0_BURST: is set without a rate; set DESTINATION_0_RATE too, or take it out"}},
		{"burst of nothing", with("DESTINATION_0_RATE=60/1h", "DESTINATION_0_BURST=0"), []string{`DESTINATION_0_BURST: "0" is too small; use a whole number, 1 or more`}},
		{"burst in words", with("DESTINATION_0_RATE=60/1h", "DESTINATION_0_BURST=all"), []string{`DESTINATION_0_BURST: "all" is not a whole number; use a whole number, 1 or more`}},
		{"jitter", with("CIRCUIT_BREAKER_COOLDOWN_JITTER=1.1", "DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_JITTER=-0.1"), []string{
			`CIRCUIT_BREAKER_COOLDOWN_JITTER: "1.1" is too large; use a number from 0 to 1`,
			`DESTINATION_0_CIRCUIT_BREAKER_COOLDOWN_JITTER: "-0.1" is too small; use a number from 0 to 1`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(tt.environ)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(strings.Join(tt.want, "\n"), err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBurstAboveTheRate(t *testing.T) {
	t.Parallel()
	_, warnings := load(t, with("DESTINATION_0_RATE=60/h", "DESTINATION_0_BURST=100")...)
	want := []string{"DESTINATION_0_BURST: is more than the rate, 60/1h: after a pause up to 160 calls are made within 1h"}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
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
