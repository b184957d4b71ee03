package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// fakeProcess is a fake-api that runs.
type fakeProcess struct {
	url    string
	first  string // what it said at its start
	stop   context.CancelFunc
	status chan int
	stdout bytes.Buffer // to be read after status
}

// startFakeAPI runs fake-api on a free port until the test's end.
func startFakeAPI(t *testing.T, args ...string) *fakeProcess {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	f := &fakeProcess{stop: stop, status: make(chan int, 1)}
	go func() {
		f.status <- Run(ctx, Process{
			Args:  append([]string{"fake-api", "--listen", "127.0.0.1:0"}, args...),
			Stdin: strings.NewReader(""), Stdout: &f.stdout, Stderr: writer,
		})
		writer.Close()
	}()
	t.Cleanup(stop)
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatalf("fake-api said nothing: %v", err)
	}
	f.first = line
	_, rest, _ := strings.Cut(line, "fake API at ")
	f.url, _, _ = strings.Cut(rest, ",")
	return f
}

// counts asks for /_stats.
func (f *fakeProcess) counts(t *testing.T) fakeStats {
	t.Helper()
	return decode[fakeStats](t, call(t, http.MethodGet, f.url+"/_stats", "").body)
}

// reply is what a call got.
type reply struct {
	status     int
	retryAfter string
	body       string
}

// call sends an empty job, with an Idempotency-Key unless it is "".
func call(t *testing.T, method, url, key string) reply {
	t.Helper()
	got, err := tryCall(t.Context(), method, url, key)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func tryCall(ctx context.Context, method, url, key string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		return reply{}, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header.Get("Retry-After"), string(body)}, err
}

func TestFakeAPICounts(t *testing.T) {
	t.Parallel()
	f := startFakeAPI(t, "--limit", "3/1h", "--latency", "0s")
	if want := "tidegate: fake API at " + f.url + ", limit 3/1h, hints retry-after; counts at /_stats\n"; f.first != want {
		t.Errorf("said %q, want %q", f.first, want)
	}
	for i, row := range []struct {
		path, key  string
		status     int
		retryAfter string
	}{
		{"/items/7", "a", 201, ""},
		{"/items//7", "b", 201, ""}, // an untidy path is as good as any
		{"/", "a", 201, ""},         // has been accepted before
		{"/", "c", 429, "3600"},
		{"/", "c", 429, "3600"}, // was told
	} {
		if got := call(t, http.MethodPost, f.url+row.path, row.key); got.status != row.status || got.retryAfter != row.retryAfter {
			t.Errorf("call %d: %d, Retry-After %q, want %d, %q", i+1, got.status, got.retryAfter, row.status, row.retryAfter)
		}
	}
	if got := call(t, http.MethodGet, f.url+"/healthz", ""); got.status != 200 || got.body != "ok\n" {
		t.Errorf("healthz: %d %q", got.status, got.body)
	}
	want := fakeStats{Stats: fakeapi.Stats{Calls: 5, Accepted: 2, Duplicates: 1, Limited: 2, Wasted: 1, MaxInFlight: 1}, Distinct: 2}
	if diff := cmp.Diff(want, f.counts(t)); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	if got := call(t, http.MethodPost, f.url+"/_fake/reset", ""); got.status != 204 {
		t.Errorf("the controls answer %d %s", got.status, got.body)
	}
	if got := call(t, http.MethodPost, f.url, "d"); got.status != 201 {
		t.Errorf("after a reset: %d", got.status)
	}
	f.stop()
	if got := <-f.status; got != 0 {
		t.Errorf("exit status %d", got)
	}
	want = fakeStats{Stats: fakeapi.Stats{Calls: 1, Accepted: 1, MaxInFlight: 1}, Distinct: 1}
	if diff := cmp.Diff(want, decode[fakeStats](t, f.stdout.String())); diff != "" {
		t.Errorf("counts at the end (-want +got):\n%s", diff)
	}
}

// The end waits for calls in flight.
func TestFakeAPIAnswersCallsInFlightAtItsEnd(t *testing.T) {
	t.Parallel()
	f := startFakeAPI(t, "--limit", "none", "--hints", "none", "--latency", "500ms")
	status := make(chan int, 1)
	go func() {
		got, _ := tryCall(t.Context(), http.MethodPost, f.url, "a") // no status if it was cut
		status <- got.status
	}()
	redistest.Eventually(t, "the call has arrived", func() bool { return f.counts(t).InFlight == 1 })
	f.stop()
	if got := <-status; got != 201 {
		t.Errorf("the call in flight got %d, want 201", got)
	}
	if got := <-f.status; got != 0 {
		t.Errorf("exit status %d", got)
	}
}

// Who can reach the API must not be able to change it.
func TestFakeAPIControlsAreForTheSameMachine(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]int{
		"127.0.0.1:4711": 204, "[::1]:4711": 204, "[::ffff:127.0.0.1]:4711": 204, "192.0.2.1:4711": 403, "[2001:db8::1]:4711": 403, "": 403,
	} {
		r := httptest.NewRequest(http.MethodPost, "/_fake/reset", http.NoBody)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		fakeHandler(fakeapi.New(fakeapi.Options{})).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("a caller at %q got %d, want %d", from, w.Code, want)
		}
	}
}

func TestFakeAPIWrongInput(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	addr := taken.Addr().String()
	for _, row := range []struct{ args, stderr string }{
		{
			"--limit many --hints retry --latency=-1s",
			`limit must be calls per time, such as 60/1m, or none, is "many"; ` +
				`unknown hint "retry": want none, ratelimit, retry-after, retry-after-date, scope, x-ratelimit; latency must not be negative, is -1s`,
		},
		{"--listen " + addr, "listen tcp " + addr + ": bind: address already in use; name another address with --listen"},
	} {
		runIn(t, nil, "", append([]string{"fake-api"}, strings.Fields(row.args)...)...).
			want(t, 2, "", "tidegate: fake-api: "+row.stderr+"\n")
	}
}
