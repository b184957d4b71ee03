package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// acceptingAPI answers 202 and calls back, as a job's number says.
type acceptingAPI struct {
	t          *testing.T
	longest    time.Duration // until it calls back
	stop       chan struct{}
	calling    sync.WaitGroup
	calledBack atomic.Int64

	mu   sync.Mutex
	urls map[int][]string // callbacks of each job
}

// The kinds of jobs, by the last digit of their number. All others are called back once, in a while.
const (
	early   = iota // before the response
	silent         // never, at the first attempt
	twice          // with the same result again
	damaged        // failed, at the first attempt
	kinds   = 10
)

func (a *acceptingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var job struct {
		N        int
		Callback string
	}
	if err := json.NewDecoder(r.Body).Decode(&job); err != nil || job.Callback != r.Header.Get("X-Callback") {
		a.t.Errorf("called with %+v and the header %q, %v", job, r.Header.Get("X-Callback"), err)
	}
	a.mu.Lock()
	a.urls[job.N] = append(a.urls[job.N], job.Callback)
	a.mu.Unlock()
	first := strings.HasSuffix(r.Header.Get("Idempotency-Key"), ":0")
	within, result := "1h", fmt.Sprintf(`{"status":"completed","output":%d}`, job.N)
	switch kind := job.N % kinds; {
	case kind == early:
		a.callBack(job.Callback, result)
	case kind == silent && first:
		within = "1"
	case kind == damaged && first:
		a.later(job.Callback, `{"status":"failed","error":"damaged"}`, 1)
	case kind == twice:
		a.later(job.Callback, result, 2)
	default:
		a.later(job.Callback, result, 1)
	}
	w.Header().Set("Tidegate-Outcome", "accepted; within="+within)
	w.WriteHeader(http.StatusAccepted)
}

func (a *acceptingAPI) later(url, result string, times int) {
	wait := rand.N(a.longest)
	a.calling.Go(func() {
		select {
		case <-time.After(wait):
		case <-a.stop:
		}
		for range times {
			a.callBack(url, result)
		}
	})
}

// caller is the client of the API.
var caller = &http.Client{Timeout: 30 * time.Second}

// callBack reports a result until Tidegate takes it, as senders of webhooks do.
func (a *acceptingAPI) callBack(url, result string) {
	for {
		resp, err := caller.Post(url, "application/json", strings.NewReader(result))
		if err == nil {
			_ = resp.Body.Close()
		}
		switch {
		case err == nil && resp.StatusCode == http.StatusOK:
			a.calledBack.Add(1)
			return
		case err == nil && (resp.StatusCode == http.StatusGone || resp.StatusCode == http.StatusNotFound):
			return // of a call whose worker has died: a later call has ended the attempt
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-a.stop:
			return
		}
	}
}

// post posts a result and returns the status.
func post(t *testing.T, url, result string) (status int, body string) {
	t.Helper()
	resp, err := caller.Post(url, "application/json", strings.NewReader(result))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Jobs that an API accepts end by its callbacks, once and as it says, although a worker and the API of Tidegate are killed
// in the middle: callbacks that come before the response, twice, or never, which is a failure at the deadline. Other tokens
// end nothing.
func TestAcceptedJobsEndOnce(t *testing.T) {
	t.Parallel()
	n, longest := 200, time.Second
	if long {
		n, longest = 1000, 5*time.Second
	}
	f := newFleet(t, redistest.Start(t), fakeapi.Options{})
	api := &acceptingAPI{t: t, longest: longest, stop: make(chan struct{}), urls: map[int][]string{}}
	server := httptest.NewServer(api)
	var target atomic.Pointer[url.URL] // of what PUBLIC_URL leads to
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }})
	t.Cleanup(func() {
		close(api.stop)
		server.Close()
		api.calling.Wait()
		proxy.Close()
	})
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	operator := f.token(tokens, "ops", "operate")
	maps.Copy(f.env, map[string]string{
		"DESTINATION_0_URL": server.URL, "DESTINATION_0_TRUST_OUTCOME": "true", "DESTINATION_0_HEADERS": "X-Callback:{{ callback }}",
		"IDEMPOTENCY_SCOPE": "attempt", "PUBLIC_URL": proxy.URL, "LISTEN_ADDR": "127.0.0.1:0", "API_TOKENS_FILE": tokens, "LOG_LEVEL": "debug",
	})
	serve := func() *instance {
		i := f.apiInstance()
		u, err := url.Parse(i.url)
		if err != nil {
			t.Fatal(err)
		}
		target.Store(u)
		return i
	}
	instance := serve()
	again := jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second, BackoffMultiplier: 1}
	var specs []*jobs.Spec
	for i := range n {
		payload := fmt.Appendf(nil, `{"n":%d,"callback":"{{ callback }}"}`, i)
		specs = append(specs, jobs.New(f.dest, payload, jobs.ID(fmt.Sprint("job-", i)), jobs.Retry(again)))
	}
	f.enqueueSpecs(specs)
	victim, survivor := f.start(), f.start()
	redistest.Await(t, time.Minute, "a quarter is called back", func() bool { return api.calledBack.Load() > int64(n/4) })
	victim.stop(syscall.SIGKILL)
	instance.stop(syscall.SIGKILL)
	f.ageLeasesOf(victim.pid(), f.dest)
	f.start()
	instance = serve()
	redistest.Await(t, 3*time.Minute, "all jobs are completed", func() bool {
		return f.stats(f.dest)[0].Counts[jobs.Completed] == n
	})
	for i := range n {
		job := f.job(fmt.Sprint("job-", i))
		attempt := 0
		if kind := i % kinds; kind == silent || kind == damaged {
			attempt = 1
		}
		history, err := f.client.History(t.Context(), job.ID)
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for _, h := range history {
			if h.Status.Final() {
				ends++
			}
		}
		if job.Status != jobs.Completed || string(job.Output) != fmt.Sprint(i) || job.Attempt != attempt || ends != 1 {
			t.Errorf("job %d: %s, output %s, attempt %d, want %d; %+v", i, job.Status, job.Output, job.Attempt, attempt, history)
		}
	}

	used, missed := api.urls[9], api.urls[silent] // of the last call, and of the first
	forged := used[0][:len(used[0])-2] + "AA"
	for _, row := range []struct {
		what, url, result string
		want              int
	}{
		{"the same result again", used[len(used)-1], `{"status":"completed","output":9}`, http.StatusOK},
		{"another result", used[len(used)-1], `{"status":"failed"}`, http.StatusGone},
		{"a token of an earlier attempt", missed[0], `{"status":"completed"}`, http.StatusNotFound},
		{"a forged token", forged, `{"status":"completed"}`, http.StatusNotFound},
		{"no token", proxy.URL + "/v1/completions/x", `{"status":"completed"}`, http.StatusNotFound},
		{"a body that is too long", used[0], `{"status":"completed","output":"` + strings.Repeat("x", 100<<10) + `"}`, http.StatusRequestEntityTooLarge},
		{"a bad body", used[0], `{"status":"done"}`, http.StatusUnprocessableEntity},
	} {
		if status, body := post(t, row.url, row.result); status != row.want {
			t.Errorf("%s: %d %s, want %d", row.what, status, body, row.want)
		}
	}
	refused := 0 // an address may send ten unknown tokens at once
	for ; refused < 20; refused++ {
		if status, _ := post(t, forged, `{"status":"completed"}`); status == http.StatusTooManyRequests {
			break
		}
	}
	if status, body := post(t, used[len(used)-1], `{"status":"completed","output":9}`); refused == 20 || status != http.StatusOK {
		t.Errorf("%d unknown tokens are answered; a known one: %d %s", refused, status, body)
	}
	if status, _, body := instance.ask("", http.MethodPatch, "/v1/jobs/job-1", `{"status":"completed"}`); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", status, body)
	}
	if status, _, body := instance.ask(operator, http.MethodPatch, "/v1/jobs/job-1", `{"status":"failed"}`); status != http.StatusConflict {
		t.Errorf("a completed job: %d %s", status, body)
	}
	for _, w := range []*worker{victim, survivor, instance.worker} {
		secret := used[0][strings.LastIndex(used[0], "/")+1:]
		if log := w.log.String(); bytes.Contains([]byte(log), []byte(secret)) {
			t.Error("a token stands in a log")
		}
	}
}
