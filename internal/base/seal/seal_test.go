package seal_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/base/seal"
)

var keyA, keyB = key('a'), key('b')

func key(c byte) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{c}, 32)) }

func TestNew(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "is empty", "?": "is not base64", "c2hvcnQ=": "has 5 bytes, not 32", keyA + "," + keyB: "", strings.TrimRight(keyA, "="): "",
	} {
		got := ""
		if _, err := seal.New(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestSeal(t *testing.T) {
	t.Parallel()
	sealer := func(keys string) *seal.Sealer {
		s, err := seal.New(keys)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := sealer(keyA)
	sealed := a.Seal("alice", []byte("token"))
	if bytes.Contains(sealed, []byte("token")) || bytes.Equal(sealed, a.Seal("alice", []byte("token"))) {
		t.Errorf("sealed as %q", sealed)
	}
	for name, row := range map[string]struct {
		s    *seal.Sealer
		name string
		ok   bool
	}{
		"same": {a, "alice", true}, "second key": {sealer(keyB + "," + keyA), "alice", true},
		"another name": {a, "bob", false}, "another key": {sealer(keyB), "alice", false},
	} {
		if got, err := row.s.Open(row.name, sealed); (err == nil) != row.ok || row.ok && string(got) != "token" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := a.Open("alice", sealed[:10]); err == nil {
		t.Error("a part is decrypted")
	}
}
