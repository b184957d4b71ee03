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

	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// document is what get -o json prints, as outsiders read it.
type document struct {
	jobs.Job
	Waiting *explain.Waiting `json:"waiting"`
	ETA     *jobs.ETA        `json:"eta"`
}

func TestEnqueueAllFlags(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	at := time.Date(2099, 1, 31, 14, 35, 0, 0, time.UTC)
	printed := decode[document](t, b.run(t, "enqueue", "-o", "json", "--destination", "shop", "--key", "alice",
		"--payload", `{"title": "Sunset <3"}`, "--path", "/items/7", "--query", "a=b&c=d", "--header", "X-A: b", "--header", "X-Time:10:30,11",
		"--id", "post-7", "--at", "2099-01-31T15:35:00+01:00", "--max-reschedules", "0", "--cost", "40", "--label", "team=web", "--label", "run=7", "--priority", "high", "--order", "key",
		"--retry", "max=3,initial=10s,multiplier=1.5,max-delay=2m,on=timeout+failure").ok(t)).Job
	zero := 0
	want := jobs.Job{
		ID: "post-7", Destination: "shop", Key: "alice", Status: jobs.Pending, Priority: jobs.PriorityHigh, Order: jobs.OrderKey,
		Payload: []byte(`{"title":"Sunset <3"}`), After: []string{},
		Request:        jobs.Request{Path: "/items/7", Query: "a=b&c=d", Headers: map[string]string{"X-A": "b", "X-Time": "10:30,11"}},
		MaxReschedules: &zero, Cost: 40, Labels: map[string]string{"team": "web", "run": "7"}, AvailableAt: at, Output: []byte("null"),
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

// The newest job of a replace-key wins.
func TestEnqueueReplaces(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	flags := []string{"enqueue", "-d", "shop", "--replace", "profile", "--delay", "5m", "--replace-max", "10m"}
	b.run(t, append(flags, "--id", "one")...).ok(t)
	if printed := b.run(t, append(flags, "--id", "two")...).ok(t); !strings.Contains(printed, "replaced     one") {
		t.Errorf("printed %s", printed)
	}
	if one := b.job(t, "one"); one.Status != jobs.Cancelled || one.LastError != "replaced by two" {
		t.Errorf("the first one is %s: %s", one.Status, one.LastError)
	}
	if got := b.run(t, append(flags, "--replace-max", "1m")...); got.status != 2 || !strings.Contains(got.stderr, "must be at least the delay") {
		t.Errorf("exit status %d: %s", got.status, got.stderr)
	}
}

func TestEnqueueExpiry(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	left := func(id string, flags ...string) time.Duration {
		t.Helper()
		printed := decode[document](t, b.run(t, append([]string{"enqueue", "-d", "shop", "--id", id, "-o", "json"}, flags...)...).ok(t)).Job
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
		printed := decode[document](t, b.run(t, append([]string{"enqueue", "-d", "shop", "-o", "json"}, row.args...)...).ok(t)).Job
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

func TestEnqueueCallbacks(t *testing.T) {
	t.Parallel()
	b := newBench(t, append(shop, "CALLBACK_HOSTS=app.example.com,localhost:9000")...)
	done, failed := "https://app.example.com/done?order=7", "http://localhost:9000/"
	if o := b.run(t, "enqueue", "-d", "shop", "--id", "a", "--on-success", done, "--on-failure", failed); o.status != 0 {
		t.Fatal(o.stderr)
	}
	lines := filepath.Join(t.TempDir(), "jobs.jsonl")
	if err := os.WriteFile(lines, []byte(`{"id":"b","destination":"shop","payload":1,"on_success":"`+done+`","on_failure":"`+failed+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := b.run(t, "enqueue", "--file", lines); o.status != 0 {
		t.Fatal(o.stderr)
	}
	for _, id := range []string{"a", "b"} {
		if job := decode[document](t, b.run(t, "get", id, "-o", "json").stdout); job.OnSuccess != done || job.OnFailure != failed {
			t.Errorf("job %+v", job)
		}
	}
	o := b.run(t, "enqueue", "-d", "shop", "--on-success", "https://other.example/", "--on-failure", "ftp://app.example.com/")
	if o.status != 2 || !strings.Contains(o.stderr, "on_success: goes to a host that is not in CALLBACK_HOSTS") || !strings.Contains(o.stderr, "on_failure: is not a URL") {
		t.Errorf("exit status %d: %s", o.status, o.stderr)
	}
}
