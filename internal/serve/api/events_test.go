package api

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// stream is an open stream of events.
type stream struct {
	t      *testing.T
	lines  chan string
	answer *http.Response
}

// listen opens a stream.
func (b *bench) listen(t *testing.T, query string, headers ...string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := web.Do(r) //nolint:bodyclose // close does it
	if err != nil {
		t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" || answer.Header.Get("X-Accel-Buffering") != "no" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s with %v", answer.Status, answer.Header)
	}
	s := &stream{t: t, lines: make(chan string, 10_000), answer: answer}
	go func() {
		defer close(s.lines)
		in := bufio.NewScanner(answer.Body)
		for in.Scan() {
			s.lines <- in.Text()
		}
	}()
	t.Cleanup(s.close)
	return s
}

func (s *stream) close() { _ = s.answer.Body.Close() }

// line is the next one; ok is false at the end.
func (s *stream) line() (line string, ok bool) {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		return line, ok
	case <-time.After(time.Minute):
		s.t.Fatal("nothing is told")
		return "", false
	}
}

type told struct {
	kind, id string
	data     map[string]any
}

// next is the next event.
func (s *stream) next() told {
	s.t.Helper()
	var e told
	for {
		line, ok := s.line()
		if !ok {
			s.t.Fatal("the stream has ended")
		}
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			e.kind = value
		case "id":
			e.id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				s.t.Fatalf("%v in %s", err, value)
			}
		case "":
			if line == "" && e.kind != "" {
				return e
			}
		}
	}
}

// settled waits until the stream tells what happens.
func (b *bench) settled(t *testing.T, s *stream) {
	t.Helper()
	for range 200 {
		if _, err := breaker.DefaultNamespace.Trip(t.Context(), b.rdb, "stock", breaker.TripOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := breaker.DefaultNamespace.Reset(t.Context(), b.rdb, "stock", "x"); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(100 * time.Millisecond)
		for {
			select {
			case line := <-s.lines:
				if strings.HasPrefix(line, "data:") {
					return
				}
				continue
			case <-deadline:
			}
			break
		}
	}
	t.Fatal("nothing is told")
}

// nextOf is the next event of the destination.
func (s *stream) nextOf(destination string) told {
	s.t.Helper()
	for {
		if e := s.next(); e.data["destination"] == destination || e.data["name"] == destination {
			return e
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.listen(t, "", "As", "read")
	b.settled(t, s)
	b.add(t, "shop", []jobs.Option{jobs.Key("alice"), jobs.Batch("monday")}, "a", "b", "c")
	b.post(t, "/v1/jobs/a/cancel", ``).ok(t, http.StatusOK)
	first := s.nextOf("shop")
	if first.kind != "job.cancelled" || first.data["id"] != "a" || first.data["key"] != "alice" || first.data["batch"] != "monday" || first.data["status"] != "cancelled" || first.id == "" {
		t.Errorf("%+v", first)
	}
	b.post(t, "/v1/breakers/shop/trip", ``).ok(t, http.StatusOK)
	if e := s.nextOf("shop"); e.kind != "breaker" || e.data["to"] != "OPEN" || e.data["by"] != "token:ann" {
		t.Errorf("%+v", e)
	}
	b.post(t, "/v1/destinations/shop/pause", ``).ok(t, http.StatusOK)
	if e := s.nextOf("shop"); e.kind != "destination" {
		t.Errorf("%+v", e)
	}

	// Who comes back hears what was missed, in order, without what is known.
	s.close()
	b.post(t, "/v1/jobs/b/cancel", ``).ok(t, http.StatusOK)
	for _, again := range []*stream{
		b.listen(t, "?type=job", "Last-Event-ID", first.id),
		b.listen(t, "?type=job.cancelled,job.failed&destination=shop&after="+first.id),
		b.listen(t, "?type=job&after=1-1", "Last-Event-ID", first.id), // the header is newer
	} {
		heard := map[string]bool{}
		for !heard["b"] {
			e := again.next()
			if e.kind == "gap" {
				continue
			}
			if e.kind != "job.cancelled" {
				t.Errorf("%+v was not asked for", e)
			}
			heard[e.data["id"].(string)] = true
		}
		again.close()
	}

	// Others hear what they asked for only.
	quiet, stock := b.listen(t, "?type=breaker&destination=shop"), b.listen(t, "?destination=stock")
	b.post(t, "/v1/jobs/c/cancel", ``).ok(t, http.StatusOK)
	redistest.Eventually(t, "events", func() bool {
		b.post(t, "/v1/breakers/shop/reset", ``).ok(t, http.StatusOK)
		b.post(t, "/v1/breakers/shop/trip", ``).ok(t, http.StatusOK)
		return len(quiet.lines) > 5
	})
	if e := quiet.next(); e.kind != "breaker" || e.data["name"] != "shop" {
		t.Errorf("%+v", e)
	}
	for len(stock.lines) > 0 {
		if line, _ := stock.line(); strings.Contains(line, "shop") {
			t.Errorf("who listens to stock hears %q", line)
		}
	}
}

func TestSilentEventsSayThatTheyLive(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{beat: 10 * time.Millisecond})
	s := b.listen(t, "?type=job.failed")
	for range 3 {
		for line := ""; line != ": still here"; {
			line, _ = s.line()
		}
	}
}

// Without a hub there are no events.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	b := &bench{url: serve(t, as(New(Options{})))}
	answer := b.get(t, "/v1/events")
	answer.problem(t, http.StatusServiceUnavailable)
	if answer.header.Get("Retry-After") != "5" {
		t.Errorf("header %v", answer.header)
	}
}

func TestEventsWithResponses(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	s, bare := u.listen(t, "?type=job&responses=true", "As", "payloads,read"), u.listen(t, "?type=job&responses=false", "As", "read")
	u.post(t, "/to/shop/x", "{}").ok(t, http.StatusAccepted)
	u.add(t, "shop", []jobs.Option{jobs.TTL(0)}, "late")
	u.call(t, http.MethodPut, "/to/shop/large", "{}", "Prefer", "wait=60").ok(t, http.StatusOK)
	statuses := map[string]any{}
	for range 3 {
		e := s.nextOf("shop")
		response, _ := e.data["response"].(map[string]any)
		statuses[e.kind+" "+fmt.Sprint(e.data["response_status"])] = response["status"]
		if body, _ := response["body"].(string); len(body) > 4096 || response["status"] == 201.0 && body != "{}" {
			t.Errorf("%d bytes: %.100s", len(body), body)
		}
		if e = bare.nextOf("shop"); e.data["response"] != nil {
			t.Errorf("without responses: %+v", e)
		}
	}
	if diff := cmp.Diff(map[string]any{"job.completed 201": 201.0, "job.completed 200": 200.0, "job.expired 0": nil}, statuses); diff != "" {
		t.Error(diff)
	}
	var ids []string
	for i := range 2*mostEvents + 10 { // their responses are read together
		ids = append(ids, fmt.Sprint("late-", i))
	}
	u.add(t, "shop", []jobs.Option{jobs.TTL(0)}, ids...)
	for range ids {
		if e := s.nextOf("shop"); !slices.Contains(ids, fmt.Sprint(e.data["id"])) {
			t.Errorf("an event of %v", e.data["id"])
		} else if response, has := e.data["response"]; !has || response != nil {
			t.Errorf("%v: response %v", e.data["id"], response)
		}
	}
	u.get(t, "/v1/events?responses=true", "As", "read").problem(t, http.StatusForbidden)
	u.get(t, "/v1/events?responses=1").problem(t, http.StatusUnprocessableEntity)
}
