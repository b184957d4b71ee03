package answers_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/jobs"
)

func TestKeyBy(t *testing.T) {
	t.Parallel()
	job := &jobs.Job{
		Key: "alice", Priority: jobs.PriorityHigh, Payload: json.RawMessage(`{"model": "large", "secret": "s3cret", "shop": {"id": 12345678901}, "tags": ["a"]}`),
		Request: jobs.Request{Method: "PUT", Path: "/v1/chat", Query: "a=b", Headers: map[string]string{"X-Team": "red"}},
	}
	for source, want := range map[string]string{
		`request.path`:                                "/v1/chat",
		`key + ":" + payload.model`:                   "alice:large",
		`payload.shop.id`:                             "12345678901",
		`request.method + " " + request.path`:         "PUT /v1/chat",
		`request.headers["X-Team"] + "-" + priority`:  "red-high",
		`payload.size ?? key`:                         "alice",
		`request.path matches "^/v1/" ? "v1" : "old"`: "v1",
		`payload.size`:                                "error: there is no such value",
		`key + ":" + payload.size`:                    "error: column 11: a value has another type than the expression expects",
		`payload.secret.of`:                           "error: column",
		`payload.tags`:                                "error: the value is not a text or a number",
		`payload.shop`:                                "error: the value is not a text or a number",
	} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			keyBy, err := answers.KeyBy(source)
			if err != nil {
				t.Fatal(err)
			}
			got, err := keyBy(job)
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != want && (want != "error: column" || !strings.HasPrefix(got, want)) || strings.Contains(got, "s3cret") {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
	keyBy, err := answers.KeyBy("payload.model")
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		"null":                                   "cannot fetch model from <nil>",
		`"text"`:                                 "column",
		strings.Repeat("[", 1000):                "payload is nested deeper than 64",
		`"` + strings.Repeat("x", 300<<10) + `"`: "payload is longer than 262144 bytes",
	} {
		key, err := keyBy(&jobs.Job{Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %q, %v, want %q", payload, key, err, want)
		}
	}
	for _, source := range []string{"request.path +", "model", `exec("x")`, "attempt"} {
		if _, err := answers.KeyBy(source); err == nil {
			t.Errorf("%q is compiled", source)
		}
	}
}
