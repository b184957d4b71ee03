package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// instance is one `tidegate api` process.
type instance struct {
	*worker
	url string
}

var apiURL = regexp.MustCompile(`"msg":"api started".*"url":"(http://[^"]+)"`)

// apiInstance starts an instance and returns when it listens.
func (f *fleet) apiInstance() *instance {
	f.t.Helper()
	w := f.launch("api")
	i := &instance{worker: w}
	redistest.Await(f.t, 2*time.Minute, "the API listens", func() bool {
		if m := apiURL.FindStringSubmatch(w.log.String()); m != nil {
			i.url = m[1]
		}
		return i.url != ""
	})
	return i
}

// token makes a token with the command that people use.
func (f *fleet) token(file, name, scopes string) string {
	f.t.Helper()
	out, stderr, code := f.tidegate("token", "new", "--name", name, "--scope", scopes, "--file", file, "-o", "json")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 || made.Token == "" {
		f.t.Fatalf("token new: %d, %v\n%s%s", code, err, out, stderr)
	}
	return made.Token
}

// ask makes a request and returns the status and the body.
func (i *instance) ask(token, method, path, body string) (int, http.Header, string) {
	i.t.Helper()
	ctx, cancel := context.WithTimeout(i.t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, i.url+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// event is one server-sent event.
type event struct{ id, typ, data string }

// events reads the stream of an instance until the test ends, from the event with the id
// after on.
func (i *instance) events(token, after string) (<-chan event, func()) {
	i.t.Helper()
	ctx, cancel := context.WithCancel(i.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.url+"/v1/events", http.NoBody)
	if err != nil {
		i.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) //nolint:bodyclose // the goroutine does
	if err != nil {
		i.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		i.t.Fatalf("events: %s, %v", resp.Status, resp.Header)
	}
	out := make(chan event, 10_000)
	go func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		var e event
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "id":
				e.id = value
			case name == "event":
				e.typ = value
			case name == "data":
				e.data = value
			case lines.Text() == "" && e.typ != "":
				out <- e
				e = event{}
			}
		}
	}()
	i.t.Cleanup(cancel)
	return out, cancel
}

// Two instances behind a balancer and two workers: what is enqueued at one is seen at the
// other, who follows the events changes from one to the other without a loss, tokens come
// and go without a restart, and nothing secret is logged.
func TestAPIInstances(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t), fakeapi.Options{Limiter: fakeapi.FixedWindow{Quota: 15, Window: 2 * time.Second}})
	file := filepath.Join(t.TempDir(), "tokens.json")
	operator := f.token(file, "ops", "operate,enqueue")
	shop := f.token(file, "shop", "enqueue")
	f.env["API_TOKENS_FILE"], f.env["LISTEN_ADDR"] = file, "127.0.0.1:0"
	f.env["LOG_LEVEL"] = "debug"
	one, two := f.apiInstance(), f.apiInstance()
	f.start()
	f.start()

	events, leave := one.events(operator, "")
	redistest.Await(t, 2*time.Minute, "ends are reported", func() bool {
		return f.rdb.Exists(t.Context(), "tidegate:{tidegate:"+f.dest+"}:ends").Val() == 1
	})
	const n = 30
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"id":"job-%d","destination":%q,"payload":{"canary":"canary-payload"}}`, i, f.dest))
	}
	status, _, body := one.ask(shop, http.MethodPost, "/v1/jobs", "["+strings.Join(list, ",")+"]")
	if status != http.StatusCreated {
		t.Fatalf("enqueue: %d %s", status, body)
	}
	ended, opened, last := map[string]int{}, 0, ""
	take := func(e event) {
		switch e.typ {
		case "job.completed":
			var d struct{ ID string }
			if err := json.Unmarshal([]byte(e.data), &d); err != nil {
				t.Fatal(err)
			}
			ended[d.ID]++
		case "breaker":
			opened++
		}
		last = e.id
	}
	deadline := time.After(40 * time.Second)
	for len(ended) < n/3 {
		select {
		case e := <-events:
			take(e)
		case <-deadline:
			t.Fatalf("%d of %d ends were told; %s", len(ended), n, f.census())
		}
	}
	leave()
	if code, took := one.stop(syscall.SIGTERM); code != 0 || took > 20*time.Second {
		t.Errorf("the first instance ended with %d after %v", code, took)
	}
	events, _ = two.events(operator, last)
	for len(ended) < n {
		select {
		case e := <-events:
			take(e)
		case <-deadline:
			t.Fatalf("%d of %d ends were told; %s", len(ended), n, f.census())
		}
	}
	if opened == 0 {
		t.Error("nothing was told of the breaker")
	}

	status, _, body = two.ask(operator, http.MethodGet, "/v1/jobs/job-3", "")
	var job jobs.Job
	if err := json.Unmarshal([]byte(body), &job); err != nil || status != http.StatusOK || job.Status != jobs.Completed || !strings.Contains(string(job.Payload), "canary-payload") {
		t.Errorf("job for an operator: %d, %v, %s", status, err, body)
	}
	if status, _, body = two.ask(shop, http.MethodGet, "/v1/jobs/job-3", ""); status != http.StatusForbidden || !strings.Contains(body, "read") {
		t.Errorf("job for one who may enqueue only: %d %s", status, body)
	}
	reader := f.token(file, "reader", "read")
	redistest.Await(t, 2*time.Minute, "the new token is good", func() bool {
		status, _, body = two.ask(reader, http.MethodGet, "/v1/jobs/job-3", "")
		return status == http.StatusOK
	})
	if strings.Contains(body, "canary-payload") || !strings.Contains(body, `"redacted":true`) {
		t.Errorf("job for a reader: %s", body)
	}
	if status, _, body = two.ask(reader, http.MethodPost, "/v1/breakers/"+f.dest+"/trip", `{}`); status != http.StatusForbidden {
		t.Errorf("trip by a reader: %d %s", status, body)
	}
	if status, _, body = two.ask(operator, http.MethodPost, "/v1/breakers/"+f.dest+"/trip", `{"reason":"tea"}`); status != http.StatusOK || !strings.Contains(body, `"tripped_by":"token:ops"`) {
		t.Errorf("trip by an operator: %d %s", status, body)
	}
	if _, stderr, code := f.tidegate("token", "remove", "--name", "ops", "--file", file); code != 0 {
		t.Fatal(stderr)
	}
	redistest.Await(t, 2*time.Minute, "the removed token is not good any more", func() bool {
		status, _, _ = two.ask(operator, http.MethodGet, "/v1/stats", "")
		return status == http.StatusUnauthorized
	})

	status, _, body = two.ask(reader, http.MethodGet, "/metrics", "")
	if status != http.StatusOK || !strings.Contains(body, `tidegate_http_requests_total{code="403",method="POST",route="/v1/breakers/{name}/trip"} 1`) {
		t.Errorf("metrics: %d\n%s", status, grep(body, "tidegate_http_requests_total"))
	}
	for _, i := range []*instance{one, two} {
		for _, secret := range []string{operator, shop, reader, "canary-payload"} {
			if strings.Contains(i.log.String(), secret) {
				t.Errorf("a log holds %s", secret)
			}
		}
	}
	if !regexp.MustCompile(`"msg":"audit".*"name":"ops"`).MatchString(two.log.String()) {
		t.Error("no line of the audit tells of the operator")
	}
}

func grep(text, part string) string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// An API that cannot reach Redis says so and serves again when it can.
func TestAPIWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server, fakeapi.Options{})
	f.env["LISTEN_ADDR"] = "127.0.0.1:0"
	server.Stop()
	i := f.apiInstance()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/stats": 503} {
		if status, header, body := i.ask("", http.MethodGet, path, ""); status != want || want == 503 && path != "/readyz" && header.Get("Retry-After") == "" {
			t.Errorf("%s without Redis: %d %v %s, want %d", path, status, header, body, want)
		}
	}
	server.Restart()
	redistest.Await(t, 2*time.Minute, "it is ready", func() bool {
		status, _, _ := i.ask("", http.MethodGet, "/readyz", "")
		return status == http.StatusOK
	})
	if status, _, body := i.ask("", http.MethodPost, "/v1/jobs", fmt.Sprintf(`{"destination":%q,"payload":1}`, f.dest)); status != http.StatusCreated {
		t.Errorf("enqueue: %d %s", status, body)
	}
	if code, _ := i.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
