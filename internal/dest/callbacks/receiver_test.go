package callbacks

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The secrets of tests: of 24 and of 64 bytes.
const (
	secretOne = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secretTwo = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
)

// received is one call to a receiver.
type received struct {
	uri     string
	id, key string // of the callback, and of the finished job
	at      time.Time
	stamp   time.Time
	body    event
	raw     []byte
	header  http.Header
	status  int // of the answer
}

// testReceiver is a receiver that verifies each call with the specification's library, by
// each of its secrets.
type testReceiver struct {
	t       *testing.T
	server  *httptest.Server
	secrets []string

	mu      sync.Mutex
	calls   []received
	open    int // calls being answered
	most    int // of them at once
	answer  http.HandlerFunc
	changed chan struct{}
}

// listen starts a receiver that responds with answer; nil: with status 204.
func listen(t *testing.T, answer http.HandlerFunc, secrets ...string) *testReceiver {
	t.Helper()
	if len(secrets) == 0 {
		secrets = []string{secretOne}
	}
	e := &testReceiver{t: t, secrets: secrets, answer: answer, changed: make(chan struct{})}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *testReceiver) receiver(destination string) Receiver {
	return Receiver{Destination: destination, URL: e.server.URL + "/hook", Secrets: e.secrets}
}

func (e *testReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // it was cut
	}
	h := received{id: r.Header.Get("webhook-id"), at: time.Now(), raw: raw, header: r.Header.Clone(), uri: r.RequestURI}
	for _, secret := range e.secrets {
		verifier, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = verifier.Verify(raw, r.Header)
		}
		if err != nil {
			e.t.Errorf("callback %s is not signed well: %v", h.id, err)
		}
	}
	unix, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	if h.stamp = time.Unix(unix, 0); err != nil || h.at.Sub(h.stamp) > 40*time.Second || h.stamp.After(h.at) {
		e.t.Errorf("callback %s was signed at %q, and came at %s", h.id, r.Header.Get("webhook-timestamp"), h.at)
	}
	if err := json.Unmarshal(raw, &h.body); err != nil {
		e.t.Errorf("callback %s: %v in %s", h.id, err, raw)
	}
	h.key = h.body.Data.ID
	e.mu.Lock()
	e.open++
	e.most = max(e.most, e.open)
	answer := e.answer
	e.mu.Unlock()
	recorder := &statusWriter{ResponseWriter: w}
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.open--
		h.status = recorder.status
		e.calls = append(e.calls, h)
		close(e.changed)
		e.changed = make(chan struct{})
	}()
	if answer == nil {
		recorder.WriteHeader(http.StatusNoContent)
		return
	}
	answer(recorder, r)
}

// statusWriter remembers the status; 0 is a call that got no answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(code int) {
	w.status = code
	w.ResponseWriter.WriteHeader(code)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// answers changes the receiver's response.
func (e *testReceiver) answers(f http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.answer = f
}

// mostAtOnce is how many calls it has been answering at the same time.
func (e *testReceiver) mostAtOnce() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.most
}

func (e *testReceiver) all() []received {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]received(nil), e.calls...)
}

// taken are the calls that it has answered with 2xx, by the job they tell of.
func (e *testReceiver) taken() map[string][]received {
	out := map[string][]received{}
	for _, h := range e.all() {
		if h.status/100 == 2 {
			out[h.key] = append(out[h.key], h)
		}
	}
	return out
}

// await waits until wanted is true for the calls that the receiver has got.
func (e *testReceiver) await(what string, wanted func() bool) {
	e.t.Helper()
	e.awaitWithin(30*time.Second, what, wanted)
}

func (e *testReceiver) awaitWithin(d time.Duration, what string, wanted func() bool) {
	d = max(d, 2*time.Minute) // the machine may be busy
	e.t.Helper()
	deadline := time.After(d)
	for {
		e.mu.Lock()
		changed := e.changed
		e.mu.Unlock()
		if wanted() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			var log string
			for _, h := range e.all() {
				log += fmt.Sprintf("\n%s %d %s %s", h.at.Format("05.000"), h.status, h.id, h.key)
			}
			if len(log) > 4000 {
				log = log[:4000]
			}
			e.t.Fatalf("%s did not come about within %s; received:%s", what, d, log)
		}
	}
}

// status answers with a status and headers given in pairs.
func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "as you like it")
	}
}
