package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// With -o json an error is one JSON document on stderr, and stdout stays empty.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	for _, row := range []struct {
		args   string
		status int
		want   string
	}{
		{"get -o json nothing", exitNotFound, "nothing"},
		{"get nothing --output=json", exitNotFound, "nothing"},
		{"cancel -ojson nothing", exitNotFound, "nothing"},
		{"breaker get -o json elsewhere", exitNotFound, "elsewhere"},
		{"enqueue -o json --destination shop --payload {", exitInput, "payload"},
		{"enqueue -o json --destination shop --header X-A:1 --header X-A:2", exitInput, "--header: X-A is given twice"},
		{"enqueue -o json --destination shop --header X-A:1 --header x-a:2", exitInput, "same header"},
		{"list -o json --nonsense", exitInput, "--nonsense"},
		{"list -o json --status nonsense", exitInput, "nonsense"},
		{"nonsense -o json", exitInput, "nonsense"},
		{"stats -o=json --nonsense", exitInput, "--nonsense"},
	} {
		got := b.run(t, strings.Fields(row.args)...)
		var doc map[string]string
		err := json.Unmarshal([]byte(got.stderr), &doc)
		if got.status != row.status || got.stdout != "" || err != nil || len(doc) != 1 || !strings.Contains(doc["error"], row.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want %d and {\"error\": …%s…}", row.args, got.status, got.stdout, got.stderr, row.status, row.want)
		}
	}
	wrong := runIn(t, []string{"DESTINATION_0_NAME=Shop", "DESTINATION_0_URL=nonsense"}, "", "config", "check", "-o", "json")
	var doc map[string]string
	if err := json.Unmarshal([]byte(wrong.stderr), &doc); err != nil || wrong.status != exitConfig || wrong.stdout != "" || !strings.Contains(doc["error"], "DESTINATION_0_URL") || !strings.Contains(doc["error"], "DESTINATION_0_NAME") {
		t.Errorf("status %d, stdout %q, stderr %q", wrong.status, wrong.stdout, wrong.stderr)
	}
}

// @- is standard input, as - is.
func TestPayloadOfStdin(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	for _, args := range [][]string{
		{"--payload", "-"}, {"--payload", "@-"}, {"--payload=@-"},
	} {
		got := runIn(t, b.env, `{"from":"stdin"}`, append([]string{"enqueue", "-o", "json", "--destination", "shop"}, args...)...)
		if !strings.Contains(got.stdout, `"from":"stdin"`) {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
