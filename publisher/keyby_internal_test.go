package publisher

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/jobs"
)

func TestToKey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                             "",
		"/":                            "",
		"alice":                        "alice",
		"/v1/chat/completions":         "v1:chat:completions",
		"/v1/items/":                   "v1:items",
		"alice:meta-llama/Llama-3":     "alice:meta-llama:Llama-3",
		"/items/7 8":                   "items:7-8-",
		"-":                            "",
		"ö":                            "",
		"/" + strings.Repeat("a", 128): strings.Repeat("a", 128),
	} {
		got := toKey(text)
		if got != want && (want != "" || text == "") && !strings.HasPrefix(got, want) || text == "/" && got != "" {
			t.Errorf("toKey(%q) = %q, want %q", text, got, want)
		}
		if got != "" && !jobs.ValidName(got) {
			t.Errorf("toKey(%q) = %q, which is not a valid key", text, got)
		}
	}
	long := strings.Repeat("a", 200)
	if a, b := toKey(long), toKey(long+"b"); a == b || len(a) > maxKey || !jobs.ValidName(a) {
		t.Errorf("two long texts have the keys %s and %s", a, b)
	}
	if a, b := toKey("a b"), toKey("a+b"); a == b {
		t.Errorf("two texts have the key %s", a)
	}
}
