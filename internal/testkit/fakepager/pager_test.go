package fakepager_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
	"github.com/tidegate/tidegate/internal/testkit/fakepager"
)

// start runs a Pager until the test's end.
func start(t *testing.T, opts fakepager.Options) *fakepager.Pager {
	t.Helper()
	p := fakepager.New(opts)
	if _, err := p.Start(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

type answer struct {
	HTTP     int      `json:"-"`
	Status   string   `json:"status"`
	Message  string   `json:"message"`
	DedupKey string   `json:"dedup_key"`
	Errors   []string `json:"errors"`
}

func send(t *testing.T, method, url string, body []byte) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	got := answer{HTTP: resp.StatusCode}
	text, err := io.ReadAll(resp.Body)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		err = errors.Join(err, json.Unmarshal(text, &got))
	}
	return got, err
}

type event map[string]any

// trigger is an event that is valid, with some fields replaced; nil takes one away.
func trigger(replace event) event {
	e := event{
		"routing_key": fakepager.DefaultKey, "event_action": "trigger", "dedup_key": "c1",
		"payload": event{"summary": "shop is open", "source": "worker-1", "severity": "critical"},
	}
	for name, value := range replace {
		field := e
		if inner, ok := strings.CutPrefix(name, "payload."); ok {
			field, name = e["payload"].(event), inner
		}
		if value == nil {
			delete(field, name)
		} else {
			field[name] = value
		}
	}
	return e
}

func enqueue(t *testing.T, p *fakepager.Pager, e event) answer {
	t.Helper()
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := send(t, http.MethodPost, p.EnqueueURL(), body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func follow(action, dedup string) event {
	return event{"routing_key": fakepager.DefaultKey, "event_action": action, "dedup_key": dedup}
}

// clock is a clock that moves by a second each time it is asked.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Second)
	return c.now
}

func TestIncidentFromTriggerToResolve(t *testing.T) {
	t.Parallel()
	p := start(t, fakepager.Options{})
	want := answer{HTTP: 202, Status: "success", Message: "Event processed", DedupKey: "c1"}
	states := func() (out []string) {
		for _, i := range p.Incidents() {
			out = append(out, i.DedupKey+" "+i.State)
		}
		return out
	}
	for _, step := range []struct {
		event event
		want  []string
	}{
		// A resolve of nothing is accepted, and without effect.
		{follow("resolve", "c1"), nil},
		{trigger(nil), []string{"c1 triggered"}},
		{trigger(event{"payload.summary": "still open"}), []string{"c1 triggered"}},
		{follow("acknowledge", "c1"), []string{"c1 acknowledged"}},
		{follow("resolve", "c1"), []string{"c1 resolved"}},
		{trigger(nil), []string{"c1 resolved", "c1 triggered"}},
	} {
		if diff := cmp.Diff(want, enqueue(t, p, step.event)); diff != "" {
			t.Errorf("answer to %v (-want +got):\n%s", step.event, diff)
		}
		if diff := cmp.Diff(step.want, states()); diff != "" {
			t.Errorf("incidents after %v (-want +got):\n%s", step.event, diff)
		}
	}
	first, open := p.Incidents()[0], p.Open()
	if first.Triggers != 2 || first.Payload.Summary != "still open" || first.ResolvedAt.Before(first.OpenedAt) {
		t.Errorf("incident = %+v", first)
	}
	if len(open) != 1 || open["c1"].Payload.Summary != "shop is open" || !open["c1"].ResolvedAt.IsZero() {
		t.Errorf("open = %+v", open)
	}
}

func TestEventIsNotedAsSent(t *testing.T) {
	t.Parallel()
	clk := &clock{now: time.Unix(1_700_000_000, 0).UTC()}
	p := start(t, fakepager.Options{Now: clk.Now})
	enqueue(t, p, trigger(event{
		"payload.timestamp": "2026-11-21T15:00:00Z", "payload.component": "shop",
		"payload.custom_details": event{"jobs waiting": 7},
		"links":                  []event{{"href": "https://x.example", "text": "dashboard"}},
		"client":                 "Tidegate", "client_url": "https://x.example",
	}))
	want := []fakepager.Event{{
		N: 1, At: time.Unix(1_700_000_002, 0).UTC(), RoutingKey: fakepager.DefaultKey, Action: "trigger", DedupKey: "c1",
		Payload: &fakepager.Payload{
			Summary: "shop is open", Source: "worker-1", Severity: "critical", Timestamp: "2026-11-21T15:00:00Z",
			Component: "shop", CustomDetails: map[string]any{"jobs waiting": 7.0},
		},
		Links: []fakepager.Link{{Href: "https://x.example", Text: "dashboard"}}, Client: "Tidegate", ClientURL: "https://x.example",
	}}
	if diff := cmp.Diff(want, p.Events()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var state fakepager.State
	resp := &bytes.Buffer{}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/_state", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	got, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	if _, err := resp.ReadFrom(got.Body); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(resp.String(), fakepager.DefaultKey) {
		t.Error("the state holds the routing key")
	}
	if err := json.Unmarshal(resp.Bytes(), &state); err != nil {
		t.Fatal(err)
	}
	want[0].RoutingKey = ""
	if diff := cmp.Diff(want, state.Events); diff != "" || len(state.Incidents) != 1 || len(state.Requests) != 1 {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func TestEventsAreChecked(t *testing.T) {
	t.Parallel()
	p := start(t, fakepager.Options{})
	for _, row := range []struct {
		name  string
		event event
		want  []string // nil: accepted
	}{
		{"short key", trigger(event{"routing_key": "abc"}), []string{"Length of 'routing_key' is incorrect (should be 32 characters)"}},
		{"key of other characters", trigger(event{"routing_key": strings.Repeat("-", 32)}), []string{"'routing_key' cannot contain non-alphanumeric characters."}},
		{"no action", trigger(event{"event_action": nil}), []string{"'event_action' is missing or blank"}},
		{"other action", trigger(event{"event_action": "snooze"}), []string{"'event_action' is invalid (must be one of the following: trigger, acknowledge, resolve)"}},
		{"no payload", trigger(event{"payload": nil}), []string{"'payload.summary' is missing or blank", "'payload.source' is missing or blank", "'payload.severity' is missing or blank"}},
		{"blank source", trigger(event{"payload.source": " "}), []string{"'payload.source' is missing or blank"}},
		{"longest summary", trigger(event{"payload.summary": strings.Repeat("ä", 1024)}), nil},
		{"long summary", trigger(event{"payload.summary": strings.Repeat("ä", 1025)}), []string{"'payload.summary' is too long (must not be longer than 1024 characters)"}},
		{"severity", trigger(event{"payload.severity": "fatal"}), []string{"'payload.severity' is invalid (must be one of the following: critical, error, warning, info)"}},
		{"long dedup_key", trigger(event{"dedup_key": strings.Repeat("x", 256)}), []string{"'dedup_key' is too long (must not be longer than 255 characters)"}},
		{"link without href", trigger(event{"links": []event{{"text": "x"}}}), []string{"'links[0].href' is missing or blank"}},
		{"resolve of what", follow("resolve", ""), []string{"'dedup_key' is missing or blank"}},
		{"summary that is no text", trigger(event{"payload.summary": 7}), []string{"The event is not a JSON object of the right form"}},
	} {
		want := answer{HTTP: 400, Status: "invalid event", Message: "Event object is invalid", Errors: row.want}
		if row.want == nil {
			want = answer{HTTP: 202, Status: "success", Message: "Event processed", DedupKey: "c1"}
		}
		if diff := cmp.Diff(want, enqueue(t, p, row.event)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
	if got := len(p.Events()); got != 1 {
		t.Errorf("%d events were accepted, want 1", got)
	}
}

func TestKeySizeAndMethod(t *testing.T) {
	t.Parallel()
	p := start(t, fakepager.Options{AnyKeyForm: true, RoutingKey: "short"})
	if got := enqueue(t, p, trigger(nil)); got.HTTP != 400 || got.Message != "Invalid routing key" {
		t.Errorf("another key: %+v", got)
	}
	if got := enqueue(t, p, trigger(event{"routing_key": "short", "dedup_key": nil})); got.HTTP != 202 || len(got.DedupKey) != 32 {
		t.Errorf("without a dedup_key: %+v", got)
	}
	p.SetRoutingKey("")
	big := trigger(event{"payload.custom_details": strings.Repeat("x", 512<<10)})
	if got := enqueue(t, p, big); got.HTTP != 413 {
		t.Errorf("more than 512 KB: %+v", got)
	}
	if got, err := send(t, http.MethodGet, p.EnqueueURL(), nil); err != nil || got.HTTP != 405 {
		t.Errorf("GET: %+v, %v", got, err)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	p := start(t, fakepager.Options{})
	for _, row := range []struct {
		fault  fakehttp.Fault
		want   answer
		events int
	}{
		{fakehttp.RateLimited(time.Second), answer{HTTP: 429}, 0},
		{fakehttp.WithStatus(500), answer{HTTP: 500}, 0},
		{fakehttp.WithError("no such service"), answer{HTTP: 400, Status: "invalid event", Message: "Event object is invalid", Errors: []string{"no such service"}}, 0},
		{fakehttp.WithStatus(503).AfterActing(), answer{HTTP: 503}, 1},
	} {
		p.SetFault(row.fault.Times(1))
		if diff := cmp.Diff(row.want, enqueue(t, p, trigger(nil))); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", row.fault, diff)
		}
		if got := len(p.Events()); got != row.events {
			t.Errorf("%+v: %d events, want %d", row.fault, got, row.events)
		}
	}
	p.SetFault(fakehttp.Dropping().AfterActing().Times(1))
	body, err := json.Marshal(trigger(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := send(t, http.MethodPost, p.EnqueueURL(), body); !errors.Is(err, io.EOF) {
		t.Errorf("closed connection: %v", err)
	}
	if err := p.Await(t.Context(), func(e []fakepager.Event) bool { return len(e) == 2 }); err != nil {
		t.Error(err)
	}
	if p.Open()["c1"].Triggers != 2 || p.Calls(fakepager.Method) != 5 {
		t.Errorf("open = %+v, requests = %+v", p.Open(), p.Requests())
	}
}
