package cli

import (
	"encoding/json"
	"testing"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                      "plain",
		"Größe 10 µ":                 "Größe 10 µ",
		"a\nb\tc\r\nd":               "a b c  d",
		"\x1b[31mred\x1b[0m\a":       "[31mred[0m",
		"C1 \u009b2J and DEL \x7f":   "C1 2J and DEL ",
		"turned \u202eround\u2066":   "turned round",
		"two\u2028lines":             "two lines",
		"no text \xff\xfe":           "no text \ufffd",
		"a replacement \ufffd stays": "a replacement \ufffd stays",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := clip("äöü\n12345", 5); got != "äöü …" {
		t.Errorf("clip: %q", got)
	}
}

func TestEscapeControls(t *testing.T) {
	t.Parallel()
	text := "a\u009bb\x7fc\u202ed\u2028e é"
	doc, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	doc = append(doc, '\n')
	got := escapeControls(doc)
	if want := `"a\u009bb\u007fc\u202ed\u2028e é"` + "\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	var back string
	if err := json.Unmarshal(got, &back); err != nil || back != text {
		t.Errorf("means %q (%v), want %q", back, err, text)
	}
}
