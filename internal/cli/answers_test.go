package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// file writes a file of a test's own.
func file(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const answerRules = `
- when: body.error.code == "later"
  then: retry
- when: status == 200 && body.ok == false && body.error == "ratelimited"
  then: limited
  scope: key
  cost: body.cost
  reason: "{{ body.error }}"
- when: status == 201
  then: ok
  output: "{'id': body.id}"
  reason: created
`

// What an answer comes to, by the rules of a file.
func TestAnswersTest(t *testing.T) {
	t.Parallel()
	env := append([]string{"DESTINATION_0_ANSWERS_FILE=" + file(t, answerRules)}, shop...)
	if r := runIn(t, shop, "", "answers", "test", "--status", "429", "--header", "Retry-After-Ms: 250"); !strings.Contains(r.stdout, "wait     250ms\n") || !strings.Contains(r.stdout, "opens at once for 250ms\n") {
		t.Errorf("a wait below 2 s: %s", r.stdout)
	}
	if r := runIn(t, shop, "", "answers", "test", "--status", "503", "--header", "Retry-After: 1.5"); !strings.Contains(r.stdout, "wait     1500ms\n") {
		t.Errorf("a wait of 1.5 s: %s", r.stdout)
	}
	runIn(t, env, "", "answers", "test", "--status", "200", "--header", "Retry-After: 30", "--body", `{"ok":false,"error":"ratelimited","cost":2.5}`, "--key", "alice").want(t, 0, `rule     rule 2: ratelimited
outcome  limited
wait     30s
scope    key
cost     2.5
job      is rescheduled, which costs no retry
error    rate limited (user limit), retry after 30s: rule 2: ratelimited
breaker  that of the key opens at once for 30s
failed   rule 1, when: column 12: a text or a list has no fields with names
`, "")
	runIn(t, env, "", "answers", "test", "--status", "201", "--body", "@"+file(t, `{"error":{"code":"none"},"id":7}`)).want(t, 0, `rule     rule 3: created
outcome  ok
output   {"id":7}
job      completes
breaker  counts a success
`, "")
	got := decode[triedAnswer](t, runIn(t, env, "", "answers", "test", "-o", "json", "--status", "500", "--body", "oops").ok(t))
	want := triedAnswer{
		Destination: "shop", Outcome: "retry", Output: json.RawMessage("null"), Budgets: []triedBudget{}, Job: "fails: no retry policy, unless it has its own",
		Error: "answered 500 Internal Server Error", Breaker: "counts no refusal",
		Failed: []string{"rule 1, when: column 6: a text or a list has no fields with names"}, // rule 2 asks for the status first,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The rules of a file come before those of the preset, and the header of an API of one's own before both.
func TestAnswersTestOfSeveral(t *testing.T) {
	t.Parallel()
	rules := file(t, `[{"when": "status == 418", "then": "ok", "reason": "tea"}]`)
	env := []string{
		"DESTINATION_0_NAME=chat", "DESTINATION_0_PRESET=slack", "DESTINATION_0_AUTH_TOKEN=hunter2", "DESTINATION_0_ANSWERS_FILE=" + rules,
		"DESTINATION_1_NAME=own", "DESTINATION_1_URL=https://api.example.com", "DESTINATION_1_ANSWERS_FILE=" + rules, "DESTINATION_1_TRUST_OUTCOME=true",
	}
	for _, row := range []struct {
		args, rule, outcome string
	}{
		{"--destination chat --status 418", "rule 1: tea", "ok"},
		{`--destination chat --status 200 --body {"ok":false,"error":"invalid_auth"}`, "preset slack, rule 2: Slack: invalid_auth", "unauthorized"},
		{`--destination chat --status 200 --body {"ok":true}`, "", "ok"},
		{"--destination chat --status 418 --header Tidegate-Outcome:fail", "rule 1: tea", "ok"},
		{"--destination own --status 418", "rule 1: tea", "ok"},
		{"--destination own --status 418 --header Tidegate-Outcome:fail", "Tidegate-Outcome", "fail"},
		{"--destination own --status 404 --header Tidegate-Outcome:ok", "Tidegate-Outcome", "ok"},
		{"--destination own --status 200 --header Tidegate-Outcome:reschedule;after=60", "Tidegate-Outcome", "reschedule"},
	} {
		args := append([]string{"answers", "test", "-o", "json"}, strings.Fields(row.args)...)
		if got := decode[triedAnswer](t, runIn(t, env, "", args...).ok(t)); got.Rule != row.rule || got.Outcome != row.outcome {
			t.Errorf("%s: %q decides %s, want %q and %s", row.args, got.Rule, got.Outcome, row.rule, row.outcome)
		}
	}
}

// Wrong input is status 2, a wrong configuration 78, and both name what is wrong.
func TestAnswersTestRefuses(t *testing.T) {
	t.Parallel()
	rules := file(t, "- when: bdy.ok\n  then: ok")
	for _, row := range []struct {
		name   string
		env    []string
		args   string
		status int
		stderr string
	}{
		{"no status", shop, "", 2, "missing flags: --status=INT"},
		{"a status", shop, "--status 42", 2, "--status: 42 is not an HTTP status; give one from 100 to 599"},
		{"a header", shop, "--status 200 --header Retry-After", 2, `--header: "Retry-After" is not a header; write NAME:VALUE`},
		{"a file", shop, "--status 200 --body @/nowhere", 2, "--body: cannot read /nowhere: no such file or directory"},
		{"a destination", shop, "--status 200 --destination blog", 2, "--destination: name one of shop"},
		{"no destination", nil, "--status 200", 78, "DESTINATION_0_NAME: is not set"},
		{
			"rules", append([]string{"DESTINATION_0_ANSWERS_FILE=" + rules}, shop...), "--status 200", 78,
			"DESTINATION_0_ANSWERS_FILE: file " + strconv.Quote(rules) + ": line 1: rule 1, when: column 1: unknown name bdy",
		},
	} {
		got := runIn(t, row.env, "", append([]string{"answers", "test"}, strings.Fields(row.args)...)...)
		if got.status != row.status || got.stdout != "" || !strings.Contains(got.stderr, row.stderr) {
			t.Errorf("%s: status %d, stderr %s, want %d and %q", row.name, got.status, got.stderr, row.status, row.stderr)
		}
	}
}

// The budgets that a response announces, of a preset and of a file, with what failed.
func TestAnswersTestBudgets(t *testing.T) {
	t.Parallel()
	env := append([]string{"DESTINATION_0_PRESET=xero", "DESTINATION_0_ANSWERS_FILE=" + file(t, `
budgets:
- {name: day, scope: key, left: 'headers["x-daylimit-remaining"]', resets: 2h}
- {name: broken, left: body.usage.left, resets: 1m}
`)}, shop...)
	runIn(t, env, "", "answers", "test", "--status", "200", "--body", "{}", "--header", "X-DayLimit-Remaining: 7", "--header", "X-MinLimit-Remaining: 59").want(t, 0, `rule     none; the status decides
outcome  ok
budget   day: 7 left, resets in 2h, of the key
budget   minute: 59 of 60 left, resets in 1m, of the key
job      completes
breaker  counts a success
failed   budget broken, left: column 12: cannot fetch left from <nil>
`, "")
}
