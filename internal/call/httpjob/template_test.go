package httpjob_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/call/httpjob"
	"github.com/tidegate/tidegate/jobs"
)

// childOf is a job with parents and their outputs.
func childOf(request jobs.Request, payload string, outputs map[string]string) *jobs.Job {
	j := &jobs.Job{ID: "child", Request: request, Payload: json.RawMessage(payload), After: []string{"none", "bad"}}
	j.Parents = map[string]jobs.Parent{"bad": {Problem: "it is not valid JSON"}}
	for id, output := range outputs {
		j.After = append(j.After, id)
		j.Parents[id] = jobs.Parent{Output: json.RawMessage(output)}
	}
	return j
}

func TestResolved(t *testing.T) {
	t.Parallel()
	outputs := map[string]string{
		"upload":        `{"itemid":9007199254740993,"title":"Sun & \"sea\" <3","tags":["a","b"],"ok":true,"ratio":0.5,"dir":"../../admin","query":"a=b&c=?#","line":"a\r\nX-B: c","empty":"","null":null,"huge":123456789012345678901234567890}`,
		"alice-7:thumb": `"t-1"`,
		"0199-a.b":      `{"n":1}`,
	}
	const item = "{{ parents.upload.itemid }}"
	for name, tc := range map[string]struct {
		request  jobs.Request
		payload  string
		want     jobs.Request
		wantJSON string
		problem  string
	}{
		"everywhere": {
			request:  jobs.Request{Path: "/items/" + item + "/x", Query: "id=" + item + "&b=1", Headers: map[string]string{"X-Item": "i-" + item, "X-B": "b"}},
			payload:  `{"a": "` + item + `", "b": "no. ` + item + `!", "c":["{{ parents.upload.tags }}"],"d":"{{parents.upload.ok}}","e":"{{ parents.upload.title }}"}`,
			want:     jobs.Request{Path: "/items/9007199254740993/x", Query: "id=9007199254740993&b=1", Headers: map[string]string{"X-Item": "i-9007199254740993", "X-B": "b"}},
			wantJSON: `{"a": 9007199254740993, "b": "no. 9007199254740993!", "c":[["a","b"]],"d":true,"e":"Sun & \"sea\" <3"}`,
		},
		"ids": {
			payload:  `["{{ parents.thumb }}","{{ parents['alice-7:thumb'] }}","{{ parents[\"0199-a.b\"].n + 1 }}","{{ parents.upload.ratio }}","{{ parents.upload.huge }}"]`,
			wantJSON: `["t-1","t-1",2,0.5,"123456789012345678901234567890"]`,
		},
		"other text stays, byte for byte": {
			payload:  `{"{{ parents.upload.itemid }}" : "{{ name }} {{#each parents}}", "b" :"{{ your parents. Bye }}" , "c": "\u007b{ parents.upload.x }}"}`,
			wantJSON: `{"{{ parents.upload.itemid }}" : "{{ name }} {{#each parents}}", "b" :"{{ your parents. Bye }}" , "c": "\u007b{ parents.upload.x }}"}`,
		},
		"braces as text": {
			payload:  `["{{ '{{' }} parents.upload.itemid }}","` + item + ` {{ '{{' }} name }}"]`,
			wantJSON: `["{{ parents.upload.itemid }}","9007199254740993 {{ name }}"]`,
		},
		"path keeps its place":  {request: jobs.Request{Path: "/a/{{ parents.upload.query }}/b"}, want: jobs.Request{Path: "/a/a=b&c=%3F%23/b"}},
		"query keeps its place": {request: jobs.Request{Query: "q={{ parents.upload.query }}"}, want: jobs.Request{Query: "q=a%3Db%26c%3D%3F%23"}},
		"empty in a path":       {request: jobs.Request{Path: "/a/{{ parents.upload.empty }}"}, problem: "request.path: {{ parents.upload.empty }}: the value is empty, which a path must not be"},
		"missing field":         {payload: `"{{ parents.upload.id }}"`, problem: "payload: {{ parents.upload.id }}: there is no such value"},
		"missing in text":       {payload: `"a {{ parents.upload.id }}"`, problem: "payload: {{ parents.upload.id }}: there is no such value"},
		"null":                  {request: jobs.Request{Query: "a={{ parents.upload.null }}"}, problem: "request.query: {{ parents.upload.null }}: there is no such value"},
		"no output":             {payload: `"{{ parents.none.id }}"`, problem: "payload: {{ parents.none.id }}: parent none has no output"},
		"output not kept":       {payload: `"{{ parents.bad }}"`, problem: "payload: {{ parents.bad }}: the output of parent bad was not kept: it is not valid JSON"},
		"too large":             {payload: `["` + strings.Repeat(item, 70) + `"]`, problem: "payload: has more than 1000 bytes with the outputs of its parents (MAX_PAYLOAD_BYTES)"},
		"too large a value":     {payload: `["{{ [` + strings.Repeat("parents.upload, ", 20) + `1] }}"]`, problem: "payload: has more than 1000 bytes with the outputs of its parents (MAX_PAYLOAD_BYTES)"},
		"too many":              {payload: `["` + strings.Repeat(item, 101) + `"]`, problem: "payload: a job must not have more than 100 expressions in {{ }}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.payload == "" {
				tc.payload, tc.wantJSON = "null", "null"
			}
			in := childOf(tc.request, tc.payload, outputs)
			before := in.Clone()
			got, err := httpjob.Resolve(t.Context(), in, 1000, nil)
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the job changed (-before +after):\n%s", diff)
			}
			if tc.problem != "" {
				if err == nil || err.Error() != tc.problem {
					t.Errorf("error %v\nwant  %s", err, tc.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Request); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantJSON, string(got.Payload)); diff != "" {
				t.Errorf("payload (-want +got):\n%s", diff)
			}
		})
	}
	// What a path or header must not have is refused as in any request.
	for _, request := range []jobs.Request{
		{Path: "/a/{{ parents.upload.dir }}"}, {Headers: map[string]string{"X-A": "{{ parents.upload.line }}"}},
	} {
		got, err := httpjob.Resolve(t.Context(), childOf(request, "null", outputs), 1000, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := httpjob.Validate(&got.Request); err == nil {
			t.Errorf("%+v is sent", got.Request)
		}
	}
	// No expression is evaluated after the context has ended.
	ended, end := context.WithCancel(t.Context())
	end()
	for _, j := range []*jobs.Job{childOf(jobs.Request{Query: "a=" + item}, "null", outputs), childOf(jobs.Request{}, `"`+item+`"`, outputs)} {
		if got, err := httpjob.Resolve(ended, j, 1000, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	// A job without parents is sent as it is.
	plain := &jobs.Job{Payload: json.RawMessage(`"` + item + `"`), Request: jobs.Request{Query: "a=" + item}}
	if got, err := httpjob.Resolve(t.Context(), plain, 1, nil); got != plain || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// Expressions are checked when a child is enqueued.
func TestTemplatesAreChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec *jobs.Spec
		want string
	}{
		"valid":               {jobs.New("shop", "{{ parents.upload.itemid }}", jobs.Path("/a/{{ parents.upload.itemid }}"), jobs.Query("a={{ parents['upload'].b }}"), jobs.Header("X-A", "{{ parents.upload.c }}"), jobs.After("upload")), ""},
		"short name":          {jobs.New("shop", "{{ parents.upload.itemid }}", jobs.After("a:upload", "b:thumb")), ""},
		"syntax":              {jobs.New("shop", "a {{ parents.upload. }}", jobs.After("upload")), `payload: "a {{ parents.upload. }}": column 21: unexpected end of expression; for {{ as text write {{ '{{' }}`},
		"not closed":          {jobs.New("shop", nil, jobs.Query("a={{ parents.upload.x"), jobs.After("upload")), `request.query: "a={{ parents.upload.x": column 3: {{ is not closed by }}; for {{ as text write {{ '{{' }}`},
		"misspelled":          {jobs.New("shop", "{{ parent.upload.x }}", jobs.After("upload")), `payload: "{{ parent.upload.x }}": column 4: unknown name parent; for {{ as text write {{ '{{' }}`},
		"unknown parent":      {jobs.New("shop", nil, jobs.Header("X-A", "{{ parents.uplaod.x }}"), jobs.After("upload")), `request.headers: "{{ parents.uplaod.x }}": the job has no parent "uplaod"; its parents: upload`},
		"ambiguous":           {jobs.New("shop", "{{ parents.upload.x }}", jobs.After("a:upload", "b:upload")), `payload: "{{ parents.upload.x }}": the job has no parent "upload"; its parents: a:upload, b:upload`},
		"all parents":         {jobs.New("shop", "{{ [parents, parents.upload.x] }}", jobs.After("upload")), `payload: "{{ [parents, parents.upload.x] }}": column 5: parents is not a value: name one of it by .name or ["name"]; for {{ as text write {{ '{{' }}`},
		"computed name":       {jobs.New("shop", "{{ parents['up' + 'load'].x }}", jobs.After("upload")), `payload: "{{ parents['up' + 'load'].x }}": column 4: parents is not a value: name one of it by .name or ["name"]; for {{ as text write {{ '{{' }}`},
		"pattern":             {jobs.New("shop", "{{ parents.upload.x matches 'a.{70}b' }}", jobs.After("upload")), `payload: "{{ parents.upload.x matches 'a.{70}b' }}": column 21: matches is not available; startsWith, endsWith, contains and == are; for {{ as text write {{ '{{' }}`},
		"doubled":             {jobs.New("shop", "{{ let a = [parents.upload.x, 1]; [a, a] }}", jobs.After("upload")), `payload: "{{ let a = [parents.upload.x, 1]; [a, a] }}": column 8: let is not available; for {{ as text write {{ '{{' }}`},
		"doubled items":       {jobs.New("shop", "{{ parents.upload.x | map([#, #]) | map([#, #]) }}", jobs.After("upload")), `payload: "{{ parents.upload.x | map([#, #]) | map([#, #]) }}": column 27: within a predicate only the item (#, .field), constants and operators can be used; for {{ as text write {{ '{{' }}`},
		"list":                {jobs.New("shop", "{{ first(filter(parents.upload.x, .ok && .type == 'a')).id ?? parents?.upload?.y }}", jobs.After("upload")), ""},
		"path around it":      {jobs.New("shop", nil, jobs.Path("a/{{ parents.upload.x }}/../b"), jobs.After("upload")), `request.path: must start with exactly one slash; it is appended to the destination's URL`},
		"not without parents": {jobs.New("shop", "{{ parents.upload. }}"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.spec.Validate(jobs.Limits{}, httpjob.Check)
			if got := errorText(err); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// {{ callback }} has a value in jobs without parents, too, and it is the one expression that these have.
func TestCallback(t *testing.T) {
	t.Parallel()
	asked := 0
	url := func() (string, error) { asked++; return "https://t.example.com/v1/completions/abc?", nil }
	for _, row := range []struct {
		after         []string
		payload, want string
	}{
		{nil, `{"a":"{{ callback }}","b":["see {{callback}}!"]}`, `{"a":"https://t.example.com/v1/completions/abc?","b":["see https://t.example.com/v1/completions/abc?!"]}`},
		{nil, `{"a":"{{ '{{' }} callback }}","{{ callback }}":1}`, `{"a":"{{ callback }}","{{ callback }}":1}`},
		{nil, `{"a":"{{ parents.upload.id }} {{ name }}"}`, `{"a":"{{ parents.upload.id }} {{ name }}"}`},
		{[]string{"upload"}, `{"a":"{{ callback }} {{ parents.upload.id }}"}`, `{"a":"https://t.example.com/v1/completions/abc? 7"}`},
	} {
		job := &jobs.Job{After: row.after, Payload: []byte(row.payload), Parents: map[string]jobs.Parent{"upload": {Output: []byte(`{"id":7}`)}}}
		got, err := httpjob.Resolve(t.Context(), job, 1000, url)
		if err != nil || string(got.Payload) != row.want {
			t.Errorf("%s: %v, %v, want %s", row.payload, got, err, row.want)
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times for a URL, want 3", asked)
	}
	got, err := httpjob.Resolve(t.Context(), &jobs.Job{Request: jobs.Request{Query: "cb={{ callback }}"}}, 1000, url)
	if err != nil || got.Request.Query != "cb=https%3A%2F%2Ft.example.com%2Fv1%2Fcompletions%2Fabc%3F" {
		t.Errorf("%+v, %v", got, err)
	}
	if problems := httpjob.Check(jobs.New("shop", []byte(`"{{ callback }} {{ nothing }}"`))); len(problems) != 1 || problems[0].Field != "payload" {
		t.Errorf("%+v", problems)
	}
}
