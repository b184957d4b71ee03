package fakehttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// echo is a fake that answers with the path and counts what it did.
type echo struct {
	*fakehttp.Fake

	mu    sync.Mutex
	acted int
}

func newEcho(now func() time.Time) *echo {
	e := &echo{}
	e.Fake = fakehttp.New("echo", now, func(w http.ResponseWriter, r *http.Request) {
		body, ok := fakehttp.ReadBody(w, r)
		if !ok {
			return
		}
		e.Answer(w, r, fakehttp.Call{
			Method: strings.TrimPrefix(r.URL.Path, "/"), Size: len(body),
			Act: func() fakehttp.Response {
				e.mu.Lock()
				e.acted++
				e.mu.Unlock()
				return fakehttp.Response{Body: body}
			},
			Fail: func(f fakehttp.Fault) fakehttp.Response {
				return fakehttp.Response{Status: 418, Body: []byte(f.Code)}
			},
		})
	}, func() any { return map[string]int{"acted": e.count()} })
	return e
}

func (e *echo) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.acted
}

func start(t *testing.T) *echo {
	t.Helper()
	e := newEcho(nil)
	if _, err := e.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

type answer struct {
	Status     int
	Type, Wait string
	Body       string
}

func call(t *testing.T, method, url, body string) (answer, error) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Retry-After"), string(got)}, err
}

func TestOtherProcessesSetFaults(t *testing.T) {
	t.Parallel()
	const plain, page = "text/plain; charset=utf-8", "text/html"
	for _, row := range []struct {
		fault string
		want  answer
		acted int
	}{
		{`{"kind":"status"}`, answer{503, plain, "", "Service Unavailable\n"}, 0},
		{`{"kind":"status","status":500,"body":"<h1>","content_type":"text/html","acts":true}`, answer{500, page, "", "<h1>"}, 1},
		{`{"kind":"status","status":429,"retry_after":"Fri, 31 Dec 1999 23:59:59 GMT"}`, answer{429, plain, "Fri, 31 Dec 1999 23:59:59 GMT", "Too Many Requests\n"}, 0},
		{`{"kind":"status","status":429,"retry_after":"left","for":"1h"}`, answer{429, plain, "3600", "Too Many Requests\n"}, 0},
		{`{"kind":"error","code":"bad_thing","retry_after":"5"}`, answer{418, plain, "5", "bad_thing"}, 0},
		{`{"kind":"slow","delay":"1ms"}`, answer{200, plain, "", "hi"}, 1},
		{`{"kind":"slow","delay":"1ms","acts":true}`, answer{200, plain, "", "hi"}, 1},
		{`{"kind":"status","methods":["b"]}`, answer{200, plain, "", "hi"}, 1},
	} {
		e := start(t)
		if got, err := call(t, "POST", e.URL()+"/_fault", row.fault); err != nil || got.Status != 204 {
			t.Fatalf("%s: %+v, %v", row.fault, got, err)
		}
		got, err := call(t, "POST", e.URL()+"/a", "hi")
		if diff := cmp.Diff(row.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", row.fault, err, diff)
		}
		if e.count() != row.acted {
			t.Errorf("%s: acted %d times, want %d", row.fault, e.count(), row.acted)
		}
		if got, err := call(t, "DELETE", e.URL()+"/_fault", ""); err != nil || got.Status != 204 {
			t.Fatal(got, err)
		}
		if got, err := call(t, "POST", e.URL()+"/a", "hi"); err != nil || got.Status != 200 {
			t.Errorf("%s, after all were lifted: %+v, %v", row.fault, got, err)
		}
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	e := start(t)
	for fault, want := range map[string]string{
		`{"kind":"boom"}`:                        `unknown kind "boom": want status, error, hang, drop or slow`,
		`{"kind":"status","status":42}`:          "status is 42: it must be 200 to 599",
		`{"kind":"error"}`:                       "kind error needs a code",
		`{"kind":"slow"}`:                        "kind slow needs a delay",
		`{"kind":"hang","next":-1}`:              "next and for must not be negative",
		`{"kind":"status","retry_after":"left"}`: "retry_after left needs a for",
		`{"kind":"status","stauts":500}`:         `json: unknown field "stauts"`,
		`{"kind":"status","for":"soon"}`:         `time: invalid duration "soon"`,
	} {
		got, err := call(t, "POST", e.URL()+"/_fault", fault)
		if err != nil || got.Status != 400 || !strings.Contains(got.Body, want) {
			t.Errorf("%s: %d %s %v, want %s", fault, got.Status, got.Body, err, want)
		}
	}
	defer func() {
		if got := recover(); got != "echo: fault: kind error needs a code" {
			t.Errorf("SetFault panicked with %v", got)
		}
	}()
	e.SetFault(fakehttp.WithError(""))
}

func TestControlsAreNoCalls(t *testing.T) {
	t.Parallel()
	e := start(t)
	if _, err := call(t, "POST", e.URL()+"/a", "four"); err != nil {
		t.Fatal(err)
	}
	e.SetFault(fakehttp.WithStatus(500))
	got, err := call(t, "GET", e.URL()+"/_state", "")
	if want := (answer{200, "application/json", "", "{\"acted\":1}\n"}); err != nil || got != want {
		t.Errorf("state = %+v, %v", got, err)
	}
	requests := e.Requests()
	if len(requests) != 1 || e.Calls() != 1 || e.Calls("a") != 1 || e.Calls("b") != 0 || e.Calls("b", "a") != 1 {
		t.Fatalf("requests = %+v", requests)
	}
	if r := requests[0]; r.N != 1 || r.Method != "a" || r.Size != 4 || r.Status != 200 || r.Done.Before(r.At) {
		t.Errorf("request = %+v", r)
	}
}

func TestServerKeepsItsPortWhileDown(t *testing.T) {
	t.Parallel()
	e := start(t)
	url := e.URL()
	addr := strings.TrimPrefix(url, "http://")
	if err := e.Down(); err != nil {
		t.Fatal(err)
	}
	if err := e.Down(); err != nil {
		t.Errorf("second Down: %v", err)
	}
	if _, err := call(t, "GET", url+"/a", ""); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("call while down: %v", err)
	}
	if other, err := net.ListenPacket("udp4", addr); err == nil {
		other.Close()
		t.Error("another fake may take the port of one that is down")
	}
	for range 2 {
		if err := e.Up(); err != nil {
			t.Errorf("Up: %v", err)
		}
	}
	if got, err := call(t, "GET", url+"/a", ""); err != nil || got.Status != 200 {
		t.Errorf("call after Up: %+v, %v", got, err)
	}
	if _, err := e.Start(""); err == nil {
		t.Error("Start of a started fake succeeded")
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Up(); err == nil || e.URL() != "" {
		t.Errorf("Up of a closed fake: %v, %q", err, e.URL())
	}
	if again, err := e.Start(addr); err != nil || again != url {
		t.Errorf("Start = %q, %v; want %q again", again, err, url)
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":0", "0.0.0.0:0", "192.0.2.1:80", "example.com:80", "127.0.0.1"} {
		e := newEcho(nil)
		if url, err := e.Start(addr); err == nil {
			t.Errorf("Start(%q) = %s, want an error", addr, url)
			e.Close()
		}
	}
}

// Starting, stopping and calling from everywhere at once ends in order.
func TestStartAndStopRace(t *testing.T) {
	t.Parallel()
	e := start(t)
	url := e.URL()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 5 {
				_ = e.Down()
				_ = e.Up()
			}
		})
		all.Go(func() {
			for range 10 {
				lift := e.SetFault(fakehttp.WithStatus(500).Times(1))
				_, _ = call(t, "POST", url+"/a", "hi")
				lift()
			}
		})
	}
	all.Wait()
	if err := e.Up(); err != nil {
		t.Fatal(err)
	}
	if got, err := call(t, "POST", url+"/a", "hi"); err != nil || got.Status != 200 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	for _, r := range e.Requests() {
		if r.Done.IsZero() {
			t.Errorf("request without an end: %+v", r)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	e := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.AwaitRequests(ctx, func(r []fakehttp.Request) bool { return len(r) > 0 }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

func TestTooLargeABodyIsRefused(t *testing.T) {
	t.Parallel()
	e := start(t)
	got, err := call(t, "POST", e.URL()+"/a", strings.Repeat("x", fakehttp.MaxBody+1))
	if err == nil && got.Status != 413 {
		t.Errorf("answer = %+v", got)
	}
	if e.count() != 0 {
		t.Error("it acted")
	}
}
