package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

type uploaded struct {
	Item int64 `json:"itemid"`
}

// A child in another destination gets the output of its parent even if the parent's record is
// deleted before the child starts, and keeps it for its retries.
func TestOutputOutlivesItsJob(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	one, two := fixtureOn(t, s), fixtureOn(t, s)
	parent := one.enqueue(jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second}))
	other := one.enqueue()
	child := two.enqueue(jobs.After(parent.ID, other.ID), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second}))
	one.run(one.options(), func(_ context.Context, j *jobs.Job) error {
		if j.ID == other.ID {
			return nil
		}
		j.Output = json.RawMessage(fmt.Sprintf(`{"itemid":%d}`, 9007199254740993+int64(j.Attempt)))
		if j.Attempt == 0 {
			return errors.New("boom")
		}
		return nil
	}, publisher.Retention(-1))
	redistest.Eventually(t, "the parents' records are deleted", func() bool {
		q := one.queue()
		return one.rdb.Exists(context.Background(), store.TaskKey(q, parent.ID), store.TaskKey(q, other.ID)).Val() == 0
	})
	var got []string
	two.run(two.options(), func(_ context.Context, j *jobs.Job) error {
		var up uploaded
		err := j.ParentOutput(parent.ID, &up)
		got = append(got, fmt.Sprint(up.Item, " ", err), fmt.Sprint(j.ParentOutput(other.ID, &up)), fmt.Sprint(j.ParentOutput("a", &up)))
		if j.Attempt == 0 {
			return errors.New("boom")
		}
		return nil
	})
	two.waitStatus(child.ID, jobs.Completed)
	call := []string{
		"9007199254740994 <nil>",
		"jobs: parent " + other.ID + " has no output",
		fmt.Sprintf("jobs: job %s has no parent %q; its parents: %s, %s", child.ID, "a", parent.ID, other.ID),
	}
	if diff := cmp.Diff(append(call, call...), got); diff != "" {
		t.Errorf("what the child's two calls saw (-want +got):\n%s", diff)
	}
}

// A job whose call was made is completed whatever its output is. A child learns why there is
// none.
func TestOutputThatIsNotKept(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		output  string
		kept    bool
		problem string
	}{
		"longest":     {`"` + strings.Repeat("x", jobs.MaxOutputBytes-2) + `"`, true, ""},
		"too long":    {`"` + strings.Repeat("x", jobs.MaxOutputBytes-1) + `"`, false, "it has 65537 bytes, at most 65536 are kept"},
		"not JSON":    {`{"itemid":`, false, "it is not valid JSON"},
		"not UTF-8":   {"\"\xff\"", false, "it is not valid JSON"},
		"too deep":    {strings.Repeat("[", 20000) + strings.Repeat("]", 20000), false, "it is not valid JSON"},
		"null":        {"null", false, ""},
		"exclamation": {`"!"`, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
			parent := b.enqueue()
			child := b.enqueue(jobs.After(parent.ID))
			var seen json.RawMessage
			var err error
			b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
				if j.ID == parent.ID {
					j.Output = json.RawMessage(tc.output)
					return nil
				}
				err = j.ParentOutput(parent.ID, &seen)
				return nil
			})
			b.waitStatus(child.ID, jobs.Completed)
			want, lastError, wantErr := "", "", "jobs: parent "+parent.ID+" has no output"
			if tc.kept {
				want, wantErr = tc.output, "<nil>"
			}
			if tc.problem != "" {
				lastError = "the output was not kept: " + tc.problem
				wantErr = "jobs: the output of parent " + parent.ID + " was not kept: " + tc.problem
			}
			got := b.get(parent.ID)
			if got.Status != jobs.Completed || string(got.Output) != want || got.LastError != lastError {
				t.Errorf("the parent is %s with %d bytes of output and last error %q", got.Status, len(got.Output), got.LastError)
			}
			if string(seen) != want || fmt.Sprint(err) != wantErr {
				t.Errorf("the child saw %d bytes, error %v", len(seen), err)
			}
		})
	}
}

// An output that holds a secret is not kept, also not in part: children would send [redacted].
func TestOutputWithASecret(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"tenant":"t-123456","itemid":7}`))
	}))
	defer api.Close()
	h, err := httpdest.New(httpdest.Options{URL: api.URL, Header: http.Header{"X-Tenant": {"t-123456"}}, Rules: bodyIsOutput{}})
	if err != nil {
		t.Fatal(err)
	}
	job := b.enqueue()
	b.run(b.options(), h.Publish)
	b.waitStatus(job.ID, jobs.Completed)
	const want = "the output was not kept: it holds a secret of the destination: take a part of the answer without it"
	if got := b.get(job.ID); got.Output != nil || got.LastError != want {
		t.Errorf("output %s, last error %q", got.Output, got.LastError)
	}
}

// bodyIsOutput is the rule "output: body".
type bodyIsOutput struct{}

func (bodyIsOutput) Decide(a httpdest.Answered) (httpdest.Decision, bool) {
	return httpdest.Decision{Then: httpdest.ThenOK, Output: a.Body}, true
}

// An HTTP destination puts the outputs of parents, here of a rule, into the request of the child. Without a value
// it makes no call.
func TestOutputInARequest(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	upload, publish := fixtureOn(t, s), fixtureOn(t, s)
	calls := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upload" {
			_, _ = io.WriteString(w, `{"itemid":7,"path":"a/b?c","outside":"../x","line":"a\r\nX-B: c"}`)
			return
		}
		body, _ := io.ReadAll(r.Body)
		calls <- fmt.Sprint(r.Method, " ", r.RequestURI, " ", r.Header.Get("X-Item"), " ", string(body))
	}))
	defer api.Close()
	h, err := httpdest.New(httpdest.Options{URL: api.URL + "/v1"})
	if err != nil {
		t.Fatal(err)
	}
	flow := publish.dest
	parent := upload.enqueue(jobs.ID(flow + ":upload"))
	enqueue := func(id, payload string, opts ...jobs.Option) {
		t.Helper()
		opts = append(opts, jobs.ID(flow+id), jobs.After(parent.ID))
		if _, err := publish.client.Enqueue(t.Context(), jobs.New(publish.dest, json.RawMessage(payload), opts...)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("-good", `{"item":"{{ parents.upload.itemid }}"}`, jobs.Path("/items/{{ parents.upload.path }}"), jobs.Query("n={{ parents.upload.itemid }}"), jobs.Header("X-Item", "{{ parents.upload.itemid }}"))
	enqueue("-missing", `{"item":"{{ parents.upload.id }}"}`)
	enqueue("-outside", `{}`, jobs.Path("/items/{{ parents.upload.outside }}"))
	enqueue("-header", `{}`, jobs.Header("X-A", "{{ parents.upload.line }}"))
	uploader, err := httpdest.New(httpdest.Options{URL: api.URL + "/upload", Rules: bodyIsOutput{}})
	if err != nil {
		t.Fatal(err)
	}
	upload.run(upload.options(), uploader.Publish, publisher.Retention(-1))
	publish.run(publish.options(), h.Publish)

	got := publish.waitStatus(flow+"-good", jobs.Completed)
	if call, want := signal(t, "the call", calls), `POST /v1/items/a%2Fb%3Fc?n=7 7 {"item":7}`; call != want {
		t.Errorf("the API got  %s\nwant         %s", call, want)
	}
	if string(got.Payload) != `{"item":"{{ parents.upload.itemid }}"}` {
		t.Errorf("the record has the payload %s", got.Payload)
	}
	for id, want := range map[string]string{
		"-missing": "payload: {{ parents.upload.id }}: there is no such value",
		"-outside": "request.path: must not contain . or .. as a segment, encoded or not",
		"-header":  "request.headers: the value of X-A has characters that a header must not have (line breaks?)",
	} {
		if got := publish.waitStatus(flow+id, jobs.Failed); got.LastError != want {
			t.Errorf("%s failed with %q, want %q", id, got.LastError, want)
		}
	}
	if len(calls) > 0 {
		t.Errorf("another call was made: %s", <-calls)
	}
}
