package breaker

import (
	"errors"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestAnyStringBecomesAKey(t *testing.T) {
	t.Parallel()
	made := map[string]string{}
	for _, text := range []string{
		"alice", "a.b_c:d@e-f", " alice", "alice ", "a/b", "ä", "-a", "\x00", strings.Repeat("a", 128), strings.Repeat("a", 129), "日本",
	} {
		key := ToKey(text)
		if err := validKey(key); err != nil || key == "" {
			t.Errorf("%q becomes %q: %v", text, key, err)
		}
		if valid := validKey(text) == nil; valid != (key == text) {
			t.Errorf("%q becomes %q", text, key)
		}
		if other, known := made[key]; known || ToKey(text) != key {
			t.Errorf("%q becomes %q, like %q", text, key, other)
		}
		made[key] = text
	}
	if key := ToKey(""); key != "" {
		t.Errorf("the destination's own breaker becomes %q", key)
	}
}

func TestInvalidKeyIsRecognised(t *testing.T) {
	t.Parallel()
	rdb := redistest.Embedded(t)
	b := start(t, rdb, Options{Destination: "api"})
	permit, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Allow":     second1(b.Key("a b").Allow(t.Context())),
		"Wait":      second1(b.Key("a b").Wait(t.Context(), 0)),
		"ForKey":    second1(permit.ForKey(t.Context(), "a b")),
		"Get":       second1(DefaultNamespace.Get(t.Context(), rdb, "api/a b")),
		"ParseName": func() error { _, _, err := ParseName("api/a b"); return err }(),
	} {
		if !errors.Is(err, ErrInvalidKey) || !strings.Contains(err.Error(), `"a b"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
