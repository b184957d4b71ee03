package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/jobs"
)

// document is what get -o json prints, as outsiders read it.
type document struct {
	jobs.Job
	Waiting *explain.Waiting `json:"waiting"`
}

func TestEnqueueAllFlags(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	at := time.Date(2099, 1, 31, 14, 35, 0, 0, time.UTC)
	printed := decode[jobs.Job](t, b.run(t, "enqueue", "-o", "json", "--destination", "shop", "--key", "alice",
		"--payload", `{"title": "Sunset <3"}`, "--path", "/items/7", "--query", "a=b&c=d", "--header", "X-A: b", "--header", "X-Time:10:30,11",
		"--id", "post-7", "--at", "2099-01-31T15:35:00+01:00", "--max-reschedules", "0", "--cost", "40", "--priority", "high",
		"--retry", "max=3,initial=10s,multiplier=1.5,max-delay=2m,on=timeout+failure").ok(t))
	zero := 0
	want := jobs.Job{
		ID: "post-7", Destination: "shop", Key: "alice", Status: jobs.Pending, Priority: jobs.PriorityHigh,
		Payload: []byte(`{"title":"Sunset <3"}`), After: []string{},
		Request:        jobs.Request{Path: "/items/7", Query: "a=b&c=d", Headers: map[string]string{"X-A": "b", "X-Time": "10:30,11"}},
		MaxReschedules: &zero, Cost: 40, AvailableAt: at, Output: []byte("null"),
		Retry: &jobs.RetryPolicy{MaxRetries: 3, InitialDelay: 10 * time.Second, BackoffMultiplier: 1.5, MaxDelay: 120 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout, jobs.OnFailure}},
	}
	created := cmpopts.IgnoreFields(jobs.Job{}, "CreatedAt")
	if diff := cmp.Diff(want, printed, created); diff != "" {
		t.Errorf("printed (-want +got)\n%s", diff)
	}
	if age := time.Since(printed.CreatedAt); age < 0 || age > time.Minute {
		t.Errorf("created %v ago", age)
	}
	read := decode[document](t, b.run(t, "get", "post-7", "-o", "json").ok(t))
	if diff := cmp.Diff(printed, read.Job); diff != "" {
		t.Errorf("get (-enqueue +get)\n%s", diff)
	}
	if w := read.Waiting; w == nil || w.Reason != explain.Scheduled || w.Until == nil || !w.Until.Equal(at) {
		t.Errorf("waiting %+v, want scheduled until %v", w, at)
	}
}

func TestEnqueueExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	left := func(id string, flags ...string) time.Duration {
		t.Helper()
		printed := decode[jobs.Job](t, b.run(t, append([]string{"enqueue", "-d", "shop", "--id", id, "-o", "json"}, flags...)...).ok(t))
		read := b.job(t, id)
		if diff := cmp.Diff(printed, read); diff != "" || read.ExpiresAt == nil {
			t.Fatalf("expires at %v; get (-enqueue +get)\n%s", read.ExpiresAt, diff)
		}
		return read.ExpiresAt.Sub(read.CreatedAt)
	}
	for ttl, want := range map[string]time.Duration{"90s": 90 * time.Second, "7d": 7 * 24 * time.Hour, "1w": 7 * 24 * time.Hour, "90500ms": 90500 * time.Millisecond} {
		if got := left("in-"+ttl, "--ttl", ttl); (got - want).Abs() > time.Minute {
			t.Errorf("--ttl %s leaves %v", ttl, got)
		}
	}
	left("at", "--expires-at", "2099-01-31T15:35:00+01:00")
	if got, want := b.job(t, "at").ExpiresAt, time.Date(2099, 1, 31, 14, 35, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("expires at %v, want %v", got, want)
	}
	for _, ttl := range []string{"0", "0s"} {
		left("none-"+ttl, "--ttl", ttl)
		if j := b.job(t, "none-"+ttl); j.Status != jobs.Expired || j.MarkedExpiredAt == nil || j.LastError != "" {
			t.Errorf("--ttl %s: %+v, want it expired, which is no failure", ttl, j)
		}
	}
	b.run(t, "enqueue", "-d", "shop", "--id", "past", "--expires-at", "2001-01-31T14:35:00Z").want(t, 0, "id           past\ndestination  shop\nstatus       expired\n", "")

	out := b.run(t, "enqueue", "-d", "shop", "--id", "text", "--ttl", "1h", "--delay", "5m").ok(t)
	if want := regexp.MustCompile(`^id           text
destination  shop
status       pending
starts       in (5m|4m[0-9]+s), at ([0-9-]+ )?[0-9:]{8}
expires      in (1h|59m[0-9s]*), at ([0-9-]+ )?[0-9:]{8}
$`); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

func TestEnqueueText(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	out := b.run(t, "enqueue", "-d", "shop").ok(t)
	if want := regexp.MustCompile(`^id           [0-9a-f-]{36}\ndestination  shop\nstatus       pending\n$`); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	out = b.run(t, "enqueue", "-d", "shop", "--delay", "1d", "--id", "later").ok(t)
	if want := regexp.MustCompile(`^id           later\ndestination  shop\nstatus       pending\nstarts       in (24h|23h59m[0-9s]*), at [0-9]{4}-[0-9-]+ [0-9:]+\n$`); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
}

// A default of the policy is filled in; what is not given stays away.
func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	j := decode[jobs.Job](t, b.run(t, "enqueue", "-d", "shop", "--retry", "max=2", "-o", "json").ok(t))
	if string(j.Payload) != "{}" || j.Priority != jobs.PriorityDefault || j.MaxReschedules != nil || !j.AvailableAt.Equal(j.CreatedAt) {
		t.Errorf("job %+v", j)
	}
	want := &jobs.RetryPolicy{MaxRetries: 2, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 300 * time.Second, RetryOn: []jobs.Trigger{jobs.OnTimeout, jobs.OnFailure, jobs.OnExplicit}}
	if diff := cmp.Diff(want, j.Retry); diff != "" {
		t.Errorf("retry (-want +got)\n%s", diff)
	}
}

// The bytes of a payload are not touched, wherever they come from.
func TestEnqueuePayloadSources(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	payload := "{ \"a\" : 1.50,\t\"b\": \"\\u00e9<\" }\n"
	file := filepath.Join(t.TempDir(), "post.json")
	if err := os.WriteFile(file, []byte(payload), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, b.env, payload, "enqueue", "-d", "shop", "--id", "stdin", "--payload", "-").ok(t)
	b.run(t, "enqueue", "-d", "shop", "--id", "file", "--payload", "@"+file).ok(t)
	b.run(t, "enqueue", "-d", "shop", "--id", "flag", "--payload", payload).ok(t)
	b.run(t, "enqueue", "-d", "shop", "--id", "negative", "--payload=-5").ok(t)
	client, err := jobs.NewClient(b.server.Client(t))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"stdin": payload, "file": payload, "flag": payload, "negative": "-5"} {
		j, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if string(j.Payload) != want {
			t.Errorf("%s: payload %q, want %q", id, j.Payload, want)
		}
	}
}

// Wrong input is refused with exit status 2, before Redis is asked.
func TestEnqueueBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big.json")
	if err := os.WriteFile(big, []byte(`"`+strings.Repeat("x", 100)+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append([]string{"REDIS_URL=redis://127.0.0.1:1", "MAX_PAYLOAD_BYTES=100"}, shop...)
	const retryForm = "write it like max=3,initial=10s,multiplier=2,max-delay=120s,on=timeout+failure"
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{}, `destination: is missing; name one of your destinations`},
		{[]string{"-d", "{shop}"}, `destination: "{shop}" must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit`},
		{[]string{"-d", "my shop"}, `destination: "my shop" must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit`},
		{[]string{"-d", "shop", "--payload", `{"a":`}, `payload: is not valid JSON: unexpected end of JSON input; a payload is JSON, with names and texts in double quotes, such as {"title":"Sunset"} or "Sunset"; in a shell put single quotes around it`},
		{[]string{"-d", "shop", "--payload", `title`}, `payload: is not valid JSON: invalid character 'i' in literal true (expecting 'r'); a payload is JSON, with names and texts in double quotes, such as {"title":"Sunset"} or "Sunset"; in a shell put single quotes around it`},
		{[]string{"-d", "shop", "--payload", ``}, `payload: is empty; JSON is expected, for instance {} or null`},
		{[]string{"-d", "shop", "--payload", `"` + strings.Repeat("x", 99) + `"`}, `payload: has 101 bytes, at most 100 are accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference`},
		{[]string{"-d", "shop", "--payload", "@" + big}, `--payload: has more than 100 bytes, which is the most that is accepted (MAX_PAYLOAD_BYTES); store it elsewhere and send a reference`},
		{[]string{"-d", "shop", "--payload", "@" + dir + "/none"}, `--payload: cannot read ` + dir + `/none: no such file or directory`},
		{[]string{"-d", "shop", "--payload", "@" + dir}, `--payload: cannot read ` + dir + `: is a directory`},
		{[]string{"-d", "shop", "--id", "a b", "--key", "-"}, `id: "a b" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit; key: "-" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`},
		{[]string{"-d", "shop", "--path", "items"}, `request.path: must start with exactly one slash; it is appended to the destination's URL`},
		{[]string{"-d", "shop", "--query", "?a=b"}, `request.query: must not start with a question mark`},
		{[]string{"-d", "shop", "--header", "secret"}, `--header: is not of the form NAME:VALUE`},
		{[]string{"-d", "shop", "--header", "Authorization: Bearer x"}, `request.headers: Authorization is set by Tidegate or by the connection and cannot be set by a job`},
		{[]string{"-d", "shop", "--priority", "urgent"}, `priority: "urgent" is none of high, default, low`},
		{[]string{"-d", "shop", "--max-reschedules=-1"}, `max_reschedules: must not be negative; leave it out for no limit`},
		{[]string{"-d", "shop", "--at", "tomorrow"}, `--at: "tomorrow" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z`},
		{[]string{"-d", "shop", "--delay", "5"}, `--delay: "5" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{[]string{"-d", "shop", "--delay=-5m"}, `delay: must not be negative`},
		{[]string{"-d", "shop", "--delay", "5m", "--at", "2099-01-31T14:35:00Z"}, `delay: give either a delay or a time, not both`},
		{[]string{"-d", "shop", "--ttl", "60"}, `--ttl: "60" is not a duration; write one such as 30s, 5m, 24h or 7d`},
		{[]string{"-d", "shop", "--ttl=-1s"}, `ttl: must not be negative; 0 expires the job at once`},
		{[]string{"-d", "shop", "--ttl", "99999d"}, `ttl: must not be more than 100 years; leave it out for a job that never expires`},
		{[]string{"-d", "shop", "--ttl", "1h", "--expires-at", "2099-01-31T14:35:00Z"}, `ttl: give either a ttl or expires_at, not both`},
		{[]string{"-d", "shop", "--expires-at", "tomorrow"}, `--expires-at: "tomorrow" is not a time; write it in RFC 3339, such as 2026-01-31T14:35:00Z`},
		{[]string{"-d", "shop", "--batch", "a b"}, `batch: "a b" must be 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`},
		{[]string{"-d", "shop", "--after", "a,b c"}, `after: "b c" cannot be the id of a job`},
		{[]string{"-d", "shop", "--id", "a", "--after", "a"}, `after: a job cannot wait for itself`},
		{[]string{"-d", "shop", "--retry", "3"}, `--retry: "3" is not of the form name=value; ` + retryForm},
		{[]string{"-d", "shop", "--retry", "initial=3s"}, `--retry: max is missing: how often to call again; ` + retryForm},
		{[]string{"-d", "shop", "--retry", "max=3,max=4"}, `--retry: max is given twice`},
		{[]string{"-d", "shop", "--retry", "max=three"}, `--retry: max=three cannot be read; ` + retryForm},
		{[]string{"-d", "shop", "--retry", "max=3,initial=1500ms"}, `--retry: initial=1500ms cannot be read; ` + retryForm},
		{[]string{"-d", "shop", "--retry", "max=3,jitter=1"}, `--retry: "jitter" is not known; ` + retryForm},
		{[]string{"-d", "shop", "--retry", "max=99,initial=0s,multiplier=0,max-delay=2h,on=rain"}, `retry.backoff_multiplier: must be at least 1.0, is 0; retry.initial_delay_secs: must be at least 1, is 0; retry.max_delay_secs: must be from initial_delay_secs (0) to 3600, is 7200; retry.max_retries: must be from 1 to 10, is 99; retry.retry_on: "rain" is none of timeout, failure, explicit`},
		{[]string{"--file", "jobs.jsonl", "--batch", "a b"}, `--batch: "a b" cannot be the name of a batch: 1 to 128 of A-Z, a-z, 0-9 and ._:@-, starting with a letter or digit`},
		{[]string{"--file", "jobs.jsonl", "--ttl", "1h"}, `with --file only --destination and --batch may be given, as the defaults of lines that name none; put the rest into the lines`},
		{[]string{"--file", "jobs.jsonl", "--after", "a"}, `with --file only --destination and --batch may be given, as the defaults of lines that name none; put the rest into the lines`},
		{[]string{"--file", "jobs.jsonl", "--expires-at", "2099-01-31T14:35:00Z"}, `with --file only --destination and --batch may be given, as the defaults of lines that name none; put the rest into the lines`},
		{[]string{"--file", "jobs.jsonl", "--id", "x"}, `with --file only --destination and --batch may be given, as the defaults of lines that name none; put the rest into the lines`},
		{[]string{"--file", dir + "/none"}, `--file: cannot read ` + dir + `/none: no such file or directory`},
		{[]string{"--file", dir}, `--file: ` + dir + ` is a directory`},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			t.Parallel()
			runIn(t, env, "", append([]string{"enqueue"}, row.args...)...).want(t, 2, "", "tidegate: "+row.want+"\n")
		})
	}
}

func TestEnqueueUnknownDestination(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Nobody knows any destination: it is accepted, with a warning.
	got := b.run(t, "enqueue", "-d", "blog", "-o", "json")
	if got.status != 0 || got.stderr != "{\"warning\":\"no worker has served this destination yet; its jobs wait until one does (destination: blog)\"}\n" {
		t.Errorf("exit status %d, stderr %q", got.status, got.stderr)
	}
	b.env = append(b.env, shop...)
	b.run(t, "enqueue", "-d", "blog").want(t, 2, "", "tidegate: destination \"blog\" is not known; known are shop\n")
	// A worker has served it.
	if err := b.server.Client(t).HSet(t.Context(), "tidegate:destinations", "blog", time.Now().UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	b.run(t, "enqueue", "-d", "blog").ok(t)
}

// The flags of a form make its payload and its encoding.
func TestEnqueueForms(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	dir := t.TempDir()
	image, csv := filepath.Join(dir, "sunset.png"), filepath.Join(dir, "rows.csv")
	for path, content := range map[string]string{image: "\x00\xff\n", csv: "a,b\n1,2\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		args    []string
		request jobs.Request
		payload string
	}{
		{
			[]string{"--form", "title=a=b <3", "--form", "tag=x", "--form", "tag=y", "--method", "put", "--call-timeout", "20s"},
			jobs.Request{Method: "PUT", Encoding: jobs.EncodingForm, TimeoutSecs: 20},
			`{"tag":["x","y"],"title":["a=b <3"]}`,
		},
		{
			[]string{"--form", "title=Sunset", "--file-part", "file=@" + image},
			jobs.Request{Encoding: jobs.EncodingMultipart},
			`{"file":[{"filename":"sunset.png","content_type":"image/png","base64":"AP8K"}],"title":["Sunset"]}`,
		},
		{[]string{"--form", "a=1", "--encoding", "multipart"}, jobs.Request{Encoding: jobs.EncodingMultipart}, `{"a":["1"]}`},
		{[]string{"--payload", `{"a":1}`, "--encoding", "form"}, jobs.Request{Encoding: jobs.EncodingForm}, `{"a":1}`},
		{[]string{"--payload", "@" + image, "--encoding", "raw"}, jobs.Request{Encoding: jobs.EncodingRaw}, `{"filename":"sunset.png","content_type":"image/png","base64":"AP8K"}`},
		{[]string{"--payload", `"text"`, "--encoding", "raw"}, jobs.Request{Encoding: jobs.EncodingRaw}, `"text"`},
	} {
		printed := decode[jobs.Job](t, b.run(t, append([]string{"enqueue", "-d", "shop", "-o", "json"}, row.args...)...).ok(t))
		if diff := cmp.Diff(row.request, printed.Request); diff != "" || string(printed.Payload) != strings.ReplaceAll(row.payload, "<", `\u003c`) && string(printed.Payload) != row.payload {
			t.Errorf("%v: payload %s, request (-want +got)\n%s", row.args, printed.Payload, diff)
		}
	}
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"--form", "secret"}, "--form: is not of the form NAME=VALUE"},
		{[]string{"--file-part", "file=" + image}, "--file-part: is not of the form NAME=@PATH"},
		{[]string{"--file-part", "file=@" + dir + "/none"}, "--file-part: cannot read " + dir + "/none: no such file or directory"},
		{[]string{"--form", "a=1", "--payload", "1"}, "--form: makes the payload; leave --payload out"},
		{[]string{"--form", "a=1", "--encoding", "json"}, "--form: makes a form; leave --encoding out"},
		{[]string{"--encoding", "xml"}, `request.encoding: "xml" is none of json, form, multipart, raw`},
		{[]string{"--encoding", "form", "--payload", "[]"}, `payload: is not an object; with the encoding form it is one from field to value, such as {"title":"Sunset"}`},
		{[]string{"--encoding", "raw", "--payload", "1"}, `payload: is not a string or an object; with the encoding raw it is one of them, such as {"content_type":"image/png","base64":"…"}`},
		{[]string{"--method", "trace"}, "request.method: TRACE is for proxies and cannot be sent"},
		{[]string{"--call-timeout", "1500ms"}, "--call-timeout: is not whole seconds"},
		{[]string{"--call-timeout", "0"}, "--call-timeout: must be 1s or more"},
	} {
		b.run(t, append([]string{"enqueue", "-d", "shop"}, row.args...)...).want(t, 2, "", "tidegate: "+row.want+"\n")
	}
	b.run(t, "enqueue", "-d", "shop", "--id", "shown", "--form", "a=1", "--method", "PATCH", "--call-timeout", "20s").ok(t)
	if out := b.run(t, "get", "shown").ok(t); !regexp.MustCompile(`(?s)method +PATCH\n.*encoding +form\ncall timeout +20s\npayload +\{"a":\["1"\]\}\n`).MatchString(out) {
		t.Errorf("get prints\n%s", out)
	}
}

// What the configuration knows of a destination is checked before the job is stored.
func TestEnqueueChecksTheDestination(t *testing.T) {
	t.Parallel()
	b := newBench(t, "DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://{key}.example.com", "DESTINATION_0_KEY_PATTERN=[a-z]+", "DESTINATION_0_TIMEOUT=10s")
	for _, row := range []struct {
		args []string
		want string
	}{
		{nil, "key: is missing; the URL of destination shop holds {key}"},
		{[]string{"--key", "a7"}, `key: "a7" does not match KEY_PATTERN of destination shop`},
		{[]string{"--key", "a", "--call-timeout", "11s"}, "request.timeout_secs: is more than the timeout of destination shop, 10s"},
	} {
		b.run(t, append([]string{"enqueue", "-d", "shop"}, row.args...)...).want(t, 2, "", "tidegate: "+row.want+"\n")
	}
	b.run(t, "enqueue", "-d", "shop", "--key", "abc", "--call-timeout", "10s").ok(t)
}
