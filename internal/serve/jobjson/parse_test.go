package jobjson

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/jobs"
)

const (
	unknownField = "is not a field of a job to enqueue; there are id, destination, key, payload, request, priority, order, retry, max_reschedules, cost, costs, available_at, delay, replace, replace_max, batch, labels, after, on_success, on_failure, ttl, if_late, expires_at"
	noObject     = `is not a JSON object; write a job such as {"destination":"example","payload":{}}`
)

func TestParse(t *testing.T) {
	t.Parallel()
	seven, none := 7, 0
	after := func(d time.Duration) *time.Duration { return &d }
	for _, row := range []struct {
		line string
		want jobs.Spec
	}{
		{`{"payload":{"a":[1,"]}\\\"",{}]}}`, jobs.Spec{Payload: []byte(`{"a":[1,"]}\\\"",{}]}`), Batch: "default"}},
		{" { \"payload\" :\t1.5e3 , \"id\" : \"\\u0061\\\"é\" } ", jobs.Spec{Payload: []byte(`1.5e3`), ID: `a"é`, Batch: "default"}},
		{`{"payload":false,"id":null,"key":null,"priority":null,"request":null,"retry":null,"max_reschedules":null,"available_at":null,"batch":null,"after":null,"ttl":null,"expires_at":null}`, jobs.Spec{Payload: []byte(`false`), Batch: "default"}},
		{`{"payload":"","max_reschedules":7,"cost":7}`, jobs.Spec{Payload: []byte(`""`), MaxReschedules: &seven, Cost: &seven, Batch: "default"}},
		{`{"payload":1,"batch":"","after":[]}`, jobs.Spec{Payload: []byte(`1`), Batch: "default"}},
		{`{"payload":1,"batch":"b","after":["x","y"],"ttl":"7d"}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", After: []string{"x", "y"}, TTL: after(7 * 24 * time.Hour)}},
		{`{"payload":1,"batch":"b","ttl":0,"expires_at":null}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", TTL: after(0)}},
		{`{"payload":1,"batch":"b","ttl":"0"}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", TTL: after(0)}},
		{`{"payload":1,"batch":"b","ttl":1.5}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", TTL: after(1500 * time.Millisecond)}},
		{`{"payload":1,"batch":"b","ttl":-3}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", TTL: after(-3 * time.Second)}}, // Validate's to refuse
		{`{"payload":1,"batch":"b","expires_at":"2026-01-31T14:35:00+01:00"}`, jobs.Spec{Payload: []byte(`1`), Batch: "b", ExpiresAt: time.Date(2026, 1, 31, 13, 35, 0, 0, time.UTC)}},
		{`{"payload":[],"max_reschedules":0,"available_at":"2026-01-31T14:35:00+01:00"}`, jobs.Spec{Payload: []byte(`[]`), Batch: "default", MaxReschedules: &none, At: time.Date(2026, 1, 31, 13, 35, 0, 0, time.UTC)}},
		{`{"payload":0,"retry":{"max_retries":2,"initial_delay_secs":400}}`, jobs.Spec{Payload: []byte(`0`), Batch: "default", Retry: &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 400 * time.Second, BackoffMultiplier: 2, MaxDelay: 400 * time.Second}}},
	} {
		got := jobs.Spec{Batch: "default"}
		if err := Parse([]byte(row.line), &got); err != nil {
			t.Errorf("%s: %v", row.line, err)
			continue
		}
		if diff := cmp.Diff(row.want, got, cmpopts.IgnoreUnexported(jobs.Spec{}), cmpopts.EquateApproxTime(0)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", row.line, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 50)
	rows := [][2]string{
		{`{"payload":1,"` + long + `":1}`, long[:39] + `…: ` + unknownField},
		{``, `is not valid JSON: unexpected end of JSON input`},
		{`{`, `is not valid JSON: unexpected end of JSON input`},
		{`{}`, `payload: is missing; give JSON, for instance {} or null`},
		{`null`, noObject},
		{"{\"payload\":\"\xff\xfe\"}", `is not UTF-8, as JSON is`},
		{"{\"payload\":1,\"id\":\"\xc3\"}", `is not UTF-8, as JSON is`},
		{"\xff", `is not UTF-8, as JSON is`},
		{`"x"`, noObject},
		{` [{"payload":1}] `, noObject},
		{`{"payload":1}{`, `is not valid JSON: invalid character '{' after top-level value`},
		{`{"payload":1,}`, `is not valid JSON: invalid character '}' looking for beginning of object key string`},
		{`{"payload":,"id":"a"}`, `is not valid JSON: invalid character ',' looking for beginning of value; a payload is JSON, with names and texts in double quotes`},
		{`{payload:1}`, `is not valid JSON: invalid character 'p' looking for beginning of object key string`},
		{`{"payload" 1}`, `is not valid JSON: invalid character '1' after object key`},
		{`{"payload":1 "id":"a"}`, `is not valid JSON: invalid character '"' after object key:value pair; a payload is JSON, with names and texts in double quotes`},
		{`{"payload":it is}`, `is not valid JSON: invalid character 'i' looking for beginning of value; a payload is JSON, with names and texts in double quotes`},
		{`{"payload":"a`, `is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes`},
		{`{"payload":[1`, `is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes`},
		{`{"payload":1,"payload":2}`, `payload: is given twice`},
		{`{"id":"a","id":"b","payload":2}`, `id: is given twice`},
		{`{"payload":1,"id":7}`, `id: must be a string`},
		{`{"payload":1,"id":nul}`, `is not valid JSON: invalid character '}' in literal null (expecting 'l')`},
		{`{"payload":1,"id":"\x"}`, `is not valid JSON: invalid character 'x' in string escape code`},
		{`{"payload":1,"request":"/x"}`, `request: must be an object`},
		{`{"payload":1,"request":{"body":1}}`, `request.body: is not known`},
		{`{"payload":1,"request":{"path":7}}`, `request.path: number found where a string is expected`},
		{`{"payload":1,"request":{"headers":[]}}`, `request.headers: array found where an object is expected`},
		{`{"payload":1,"request":{"headers":{"X-A":7}}}`, `request.headers: number found where a string is expected`},
		{`{"payload":1,"retry":{"max_retries":1.5}}`, `retry.max_retries: number 1.5 found where a whole number is expected`},
		{`{"payload":1,"retry":{"backoff_multiplier":"2"}}`, `retry.backoff_multiplier: string found where a number is expected`},
		{`{"payload":1,"retry":{"retry_on":"timeout"}}`, `retry.retry_on: string found where a list is expected`},
		{`{"payload":1,"request":{"path":}}`, `is not valid JSON: invalid character '}' looking for beginning of value`},
		{`{"payload":1,"max_reschedules":1.5}`, `max_reschedules: must be a whole number`},
		{`{"payload":1,"max_reschedules":"7"}`, `max_reschedules: must be a whole number`},
		{`{"payload":1,"cost":1.5}`, `cost: must be a whole number`},
		{`{"payload":1,"max_reschedules":007}`, `is not valid JSON: invalid character '0' after object key:value pair`},
		{`{"payload":1,"available_at":"tomorrow"}`, `available_at: "tomorrow" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z`},
		{`{"payload":1,"available_at":1700000000}`, `available_at: must be a string`},
		{`{"payload":1,"Destination":"shop"}`, `Destination: is not a field of a job to enqueue; did you mean destination?`},
		{`{"payload":1,"kye":"a"}`, `kye: is not a field of a job to enqueue; did you mean key?`},
		{`{"payload":1,"delay":"soon"}`, `delay: "soon" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{`{"payload":1,"replace":7,"replace_max":true}`, `replace: must be a string; replace_max: must be a duration such as "7d", or a number of seconds`},
		{`{"payload":1,"Status":"pending"}`, `Status: ` + unknownField},
		{`{"payload":1,"status":nonsense}`, `is not valid JSON: invalid character 'o' in literal null (expecting 'u')`},
		{`{"payload":1,"response":{"status":}}`, `is not valid JSON: invalid character '}' looking for beginning of value`},
		{`{"status":"pending"}`, `payload: is missing; "list" leaves payloads out, "get ID -o json" has them`},
		{`{"payload":1,"batch":7}`, `batch: must be a string`},
		{`{"payload":1,"batch":"a","batch":"b"}`, `batch: is given twice`},
		{`{"payload":1,"after":"a,b"}`, `after: must be a list of strings`},
		{`{"payload":1,"after":[1]}`, `after: must be a list of strings`},
		{`{"payload":1,"after":[}`, `is not valid JSON: invalid character '}' looking for beginning of value`},
		{`{"payload":1,"ttl":"soon"}`, `ttl: "soon" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{`{"payload":1,"ttl":""}`, `ttl: "" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{`{"payload":1,"ttl":true}`, `ttl: must be a duration such as "7d", or a number of seconds`},
		{`{"payload":1,"ttl":[60]}`, `ttl: must be a duration such as "7d", or a number of seconds`},
		{`{"payload":1,"ttl":1e12}`, `ttl: is too long`},
		{`{"payload":1,"ttl":1e999}`, `ttl: must be a duration such as "7d", or a number of seconds`},
		{`{"payload":1,"ttl":0x10}`, `is not valid JSON: invalid character 'x' after object key:value pair`},
		{`{"payload":1,"expires_at":"tomorrow"}`, `expires_at: "tomorrow" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z`},
		{`{"payload":1,"expires_at":60}`, `expires_at: must be a string`},
	}
	for _, row := range rows {
		line, want := row[0], row[1]
		var spec jobs.Spec
		err := Parse([]byte(line), &spec)
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", line, err, want)
		}
	}
}

// The parser by hand agrees with encoding/json.
func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`{"id":"a","destination":"shop","payload":{"n": 1}}`, `nonsense`, `{"payload":1,"ttl":60,"expires_at":"2099-01-31T14:35:00Z"}`,
		`{"payload":1,"retry":{"max_retries":3,"often":true}}`, `{"payload":{"a":]}}`, `[1]`, `{"payload":1,"expire_at":null}`,
		`{"id":"c","destination":"stock","key":"alice","payload":3,"priority":"high","max_reschedules":7,"available_at":"2099-01-31T14:35:00Z",` +
			`"request":{"path":"/x","query":"a=b","headers":{"X-A":"b"}},"retry":{"max_retries":2,"retry_on":["timeout"]}}`,
	} {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"payload":1,"max_reschedules":-0,"id":"\ud800"}`))
	f.Add([]byte(`{"payload":1,"batch":"b","after":["x",null],"ttl":1e-9,"status":"pending","response":{"body":[]},"waiting":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var spec jobs.Spec
		err := Parse(line, &spec)
		if err == nil {
			// Whether the payload is JSON is Validate's to check.
			if !json.Valid(line) && json.Valid(spec.Payload) {
				t.Fatalf("accepted, but it is not JSON: %q", line)
			}
			if !json.Valid(line) {
				return
			}
			var want struct {
				ID             string           `json:"id"`
				Destination    string           `json:"destination"`
				Key            string           `json:"key"`
				Payload        json.RawMessage  `json:"payload"`
				Request        jobs.Request     `json:"request"`
				Priority       jobs.Priority    `json:"priority"`
				Retry          *json.RawMessage `json:"retry"`
				MaxReschedules *int             `json:"max_reschedules"`
				Cost           *int             `json:"cost"`
				AvailableAt    *json.RawMessage `json:"available_at"`
				Batch          string           `json:"batch"`
				After          []string         `json:"after"`
			}
			if err := json.Unmarshal(line, &want); err != nil {
				t.Fatalf("accepted %q, encoding/json says %v", line, err)
			}
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(line, &fields); err != nil {
				t.Fatalf("accepted %q, encoding/json says %v", line, err)
			}
			for name := range fields {
				if !slices.Contains(names(), name) && !reported[name] {
					t.Fatalf("accepted %q with %q", line, name)
				}
			}
			if len(want.After) == 0 {
				want.After = nil
			}
			got := jobs.Spec{Batch: want.Batch, After: want.After, TTL: spec.TTL, ExpiresAt: spec.ExpiresAt, ID: want.ID, Destination: want.Destination, Key: want.Key, Payload: want.Payload, Request: want.Request, Priority: want.Priority, MaxReschedules: want.MaxReschedules, Cost: want.Cost, Retry: spec.Retry, At: spec.At}
			if diff := cmp.Diff(got, spec, cmpopts.IgnoreUnexported(jobs.Spec{})); diff != "" {
				t.Fatalf("%q (-encoding/json +ours)\n%s", line, diff)
			}
			return
		}
		if !json.Valid(line) {
			return
		}
		if text := err.Error(); strings.Contains(text, "is not valid JSON:") {
			t.Fatalf("%q is valid JSON, but: %v", line, err)
		}
	})
}

func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", readBuffer+5)
	in := "\ufeffone\r\n\n  two \n" + strings.Repeat("y", 11) + "\n" + long + "\n" + long + long + long + "\nlast"
	for name, r := range map[string]io.Reader{"at once": strings.NewReader(in), "by the byte": iotest.OneByteReader(strings.NewReader(in))} {
		lines := NewLines(r, 10)
		var got []string
		for {
			line, err := lines.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			switch {
			case errors.Is(err, ErrLongLine):
				got = append(got, "TOO LONG")
			case err != nil:
				t.Fatal(err)
			default:
				got = append(got, string(line))
			}
		}
		if want := []string{"one", "", "two", "TOO LONG", "TOO LONG", "TOO LONG", "last"}; !slices.Equal(got, want) || lines.number != len(want) {
			t.Errorf("%s: %q and number %d, want %q", name, got, lines.number, want)
		}
		if lines.offset != int64(len(in)) {
			t.Errorf("%s: offset %d, want %d", name, lines.offset, len(in))
		}
	}
	// A line that is as long as allowed, and longer than the buffer.
	lines := NewLines(strings.NewReader(long+"\n"), len(long))
	if line, err := lines.Next(); err != nil || string(line) != long {
		t.Errorf("%d bytes, %v, want all %d", len(line), err, len(long))
	}
	boom := errors.New("boom")
	lines = NewLines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(boom)), 10)
	if line, err := lines.Next(); string(line) != "a" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if _, err := lines.Next(); !errors.Is(err, boom) {
		t.Errorf("error %v, want %v", err, boom)
	}
}

func BenchmarkParse(b *testing.B) {
	line := []byte(`{"destination":"deviantart","key":"user-7","payload":{"title":"Sunset over the sea","tags":["a","b","c"],"body":"` + strings.Repeat("x", 100) + `"}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		var spec jobs.Spec
		if err := Parse(line, &spec); err != nil {
			b.Fatal(err)
		}
	}
}

// What get prints can be enqueued again: the fields that are not the caller's to
// choose are passed over.
func TestParseAcceptsTheOutputOfGet(t *testing.T) {
	t.Parallel()
	limit, at := 7, time.Date(2099, 1, 31, 14, 35, 0, 0, time.UTC)
	job := jobs.Job{
		ID: "post-7", Destination: "shop", Key: "alice", Status: jobs.Failed, Priority: jobs.PriorityHigh, Payload: []byte(`{"a":1}`),
		Request: jobs.Request{Path: "/7", Headers: map[string]string{"X-A": "b"}}, Batch: "monday", After: []string{"post-6"},
		Attempt: 2, Retry: &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout}},
		RescheduleCount: 3, MaxReschedules: &limit, Cost: 40, AvailableAt: at, CreatedAt: at, StartedAt: &at, ExpiresAt: &at, MarkedExpiredAt: &at, CompletedAt: &at,
		EndedAt: &at, NextRetryAt: &at, Response: &jobs.Response{Status: 500, Body: `{"payload":"}`}, LastError: "boom", Reason: "breaker shop open",
		Worker: "host:7", Crashes: 1, Duplicate: true,
	}
	line, err := json.Marshal(struct {
		*jobs.Job
		Waiting  map[string]any `json:"waiting"`
		Redacted bool           `json:"redacted"`
	}{Job: &job, Waiting: map[string]any{"reason": "queued"}})
	if err != nil {
		t.Fatal(err)
	}
	var got jobs.Spec
	if err := Parse(line, &got); err != nil {
		t.Fatalf("%s\n%v", line, err)
	}
	want := jobs.Spec{
		ID: job.ID, Destination: job.Destination, Key: job.Key, Priority: job.Priority, Payload: job.Payload, Request: job.Request, Batch: job.Batch,
		After: job.After, Retry: job.Retry, MaxReschedules: job.MaxReschedules, Cost: &job.Cost, At: at, ExpiresAt: at,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(jobs.Spec{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// All that is wrong is said at once, each under the name of its field.
func TestParseNamesEachField(t *testing.T) {
	t.Parallel()
	const line = `{"destination":7,"kye":"a","retry":{"max_retries":"3"},"request":{"path":"x"},"after":["-"],"ttl":"soon"}`
	var spec jobs.Spec
	err := Complete(Parse([]byte(line), &spec), &spec, jobs.Limits{})
	want := []jobs.FieldError{
		{Field: "destination", Message: "must be a string"},
		{Field: "kye", Message: "is not a field of a job to enqueue; did you mean key?"},
		{Field: "retry.max_retries", Message: "string found where a whole number is expected"},
		{Field: "ttl", Message: `"soon" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{Field: "payload", Message: "is missing; give JSON, for instance {} or null"},
		{Field: "after", Message: `"-" cannot be the id of a job`},
		{Field: "request.path", Message: "must start with exactly one slash; it is appended to the destination's URL"},
	}
	invalid, ok := errors.AsType[*jobs.ValidationError](err)
	if !ok {
		t.Fatalf("error %v, want a *jobs.ValidationError", err)
	}
	if diff := cmp.Diff(want, invalid.Fields); diff != "" {
		t.Errorf("fields (-want +got)\n%s", diff)
	}
	var syntax *SyntaxError
	if err := Complete(Parse([]byte(`{"ttl":"soon"`), &spec), &spec, jobs.Limits{}); !errors.As(err, &syntax) || !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("error %v, want a *SyntaxError", err)
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for array, want := range map[string][]string{
		`[]`: nil, " [ ] ": nil, `[1]`: {"1"}, "[\n{\"a\":[1,\"]\"]} ,\t\"x,\" , null,[2] ]": {`{"a":[1,"]"]}`, `"x,"`, "null", "[2]"},
	} {
		got, ok, err := Elements([]byte(array), 4)
		var texts []string
		for _, e := range got {
			texts = append(texts, string(e))
		}
		if !ok || err != nil || !slices.Equal(texts, want) {
			t.Errorf("%s: %q, %v, %v, want %q", array, texts, ok, err, want)
		}
	}
	if got, ok, err := Elements([]byte(`[1,2,3]`), 2); ok || err != nil {
		t.Errorf("three of at most two: %q, %v", got, err)
	}
	if _, _, err := Elements([]byte(`[1,2`), 2); err == nil {
		t.Error("half an array is taken")
	}
}
