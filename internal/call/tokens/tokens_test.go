package tokens_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/tokens"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const shape = `write a JSON object of keys and tokens: {"alice": "TOKEN", "bob": "TOKEN"}`
	long := strings.Repeat("x", 129)
	for _, row := range []struct {
		name, content string
		want          map[string]string
		problems      tokens.Errors
	}{
		{name: "not ASCII", content: ` {"alice": "a/+=", "b@c.d:e_f-1": "é"}`, problems: tokens.Errors{
			{`line 1: the token of key "b@c.d:e_f-1" holds a space, a line break or a character that is not ASCII`, "give the token alone, on one line"},
		}},
		{name: "two", content: "{\"alice\": \"a/+=\",\n\"b@c.d:e_f-1\": \"\\u0062\"}\n", want: map[string]string{"alice": "a/+=", "b@c.d:e_f-1": "b"}},
		{name: "none", content: "{}", want: map[string]string{}},
		{name: "a byte order mark", content: "\ufeff{\"a\":\"b\"}", want: map[string]string{"a": "b"}},
		{name: "empty", content: " \n", problems: tokens.Errors{{"is empty", shape}}},
		{name: "no JSON", content: "alice: hunter2", problems: tokens.Errors{{"is not JSON: look at line 1", shape}}},
		{name: "broken", content: "{\n\"alice\": \"a\"\n\"bob\": \"hunter2\"}", problems: tokens.Errors{{"is not JSON: look at line 3", shape}}},
		{name: "cut off", content: "{\"alice\": \"hunter2", problems: tokens.Errors{{"is not JSON: look at line 1", shape}}},
		{name: "cut off behind a token", content: "{\"alice\": \"hunter2\"", problems: tokens.Errors{{"is not JSON: look at line 1", shape}}},
		{name: "a token alone", content: `"hunter2"`, problems: tokens.Errors{{"is not a JSON object", shape}}},
		{name: "a list", content: `["hunter2"]`, problems: tokens.Errors{{"is not a JSON object", shape}}},
		{name: "null", content: `null`, problems: tokens.Errors{{"is not a JSON object", shape}}},
		{name: "two objects", content: `{"a":"b"} {}`, problems: tokens.Errors{{"holds more than one JSON object", shape}}},
		{
			name:    "all that can be wrong with a token",
			content: "{\"no\": 7,\n\"null\": null,\n\"deep\": {\"alice\": \"hunter2\"},\n\"empty\": \"\",\n\"bearer\": \"Bearer hunter2\",\n\"break\": \"hunter2\\n\",\n\"ok\": \"x\"}",
			problems: tokens.Errors{
				{`line 1: the token of key "no" is not a string`, "give the token as a string"},
				{`line 2: the token of key "null" is not a string`, "give the token as a string"},
				{`line 3: the token of key "deep" is not a string`, "give the token as a string"},
				{`line 4: the token of key "empty" is empty`, "give it a value, or take the key out"},
				{`line 5: the token of key "bearer" holds a space, a line break or a character that is not ASCII`, "give the token alone, without Bearer before it"},
				{`line 6: the token of key "break" holds a space, a line break or a character that is not ASCII`, "give the token alone, on one line"},
			},
		},
		{
			name: "keys", content: `{"": "a", "-x": "b", "a b": "c", "` + long + `": "d", "a": "e", "a": "f"}`,
			problems: tokens.Errors{
				{`line 1: "" is not a valid key`, "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit"},
				{`line 1: "-x" is not a valid key`, "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit"},
				{`line 1: "a b" is not a valid key`, "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit"},
				{`line 1: "xxxxxxxxxxxx…" is not a valid key`, "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit"},
				{`line 1: "a" is there twice`, "leave one of them"},
			},
		},
		{
			name: "key and token swapped", content: `{"sk_live/hunter2hunter2": "alice"}`,
			problems: tokens.Errors{{`line 1: "sk_live/hunt…" is not a valid key`, "use 1 to 128 letters, digits and . _ : @ -, starting with a letter or digit"}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := tokens.Parse([]byte(row.content))
			problems, _ := errors.AsType[tokens.Errors](err)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("tokens (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a token: %v", err)
			}
		})
	}
}

// A file that is wrong from end to end is told of in a few lines.
func TestParseBoundsProblems(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "%c\n\"key%d\": 7", "{,"[min(i, 1)], i)
	}
	_, err := tokens.Parse([]byte(b.String() + "}"))
	problems, _ := errors.AsType[tokens.Errors](err)
	if len(problems) != 11 || problems[9].What != `line 11: the token of key "key9" is not a string` || problems[10].What != "has more problems, 1000 in all" {
		t.Errorf("%d problems: %v", len(problems), err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.json")
	if err := os.WriteFile(file, []byte(`{"a":"b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, info, err := tokens.Read(file)
	if err != nil || got["a"] != "b" || info.Size() != 9 {
		t.Errorf("%v, %v, %v", got, info, err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, tokens.MaxFile+1); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "cannot be read: no such file or directory",
		dir:                           "cannot be read: is a directory",
		large:                         "is larger than 32 MiB",
	} {
		if _, _, err := tokens.Read(path); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestExposed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for mode, want := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o644: true, 0o640: true, 0o604: true, 0o660: true} {
		path := filepath.Join(dir, mode.String())
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := tokens.Exposed(info); got != want {
			t.Errorf("mode %o of one's own file: exposed %t, want %t", mode, got, want)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	var file strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&file, "%c\n\"user-%d\": \"2YotnFZFEjr1zCsicMWpAA%032d\"", "{,"[min(i, 1)], i, i)
	}
	content := []byte(file.String() + "}")
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		if _, err := tokens.Parse(content); err != nil {
			b.Fatal(err)
		}
	}
}
