package fakepager

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidegate/tidegate/internal/testkit/fakehttp"
)

// Limits of the Events API.
const (
	maxEvent   = 512 << 10 // bytes
	maxSummary = 1024      // characters
	maxDedup   = 255       // characters
	keyLength  = 32
)

// Method is the name of the one call in the log and in faults.
const Method = "enqueue"

var (
	alphanumeric = regexp.MustCompile(`^[0-9A-Za-z]*$`)
	actions      = []string{"trigger", "acknowledge", "resolve"}
	severities   = []string{"critical", "error", "warning", "info"}
)

func (p *Pager) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	body, ok := fakehttp.ReadBody(w, r)
	if !ok {
		return
	}
	p.Answer(w, r, fakehttp.Call{
		Method: Method, Size: len(body),
		Act: func() fakehttp.Response {
			answer := p.enqueue(body)
			p.Change()
			return answer
		},
		Fail: func(f fakehttp.Fault) fakehttp.Response {
			status := f.Status
			if status == 0 {
				status = http.StatusBadRequest
			}
			return refuse(status, "Event object is invalid", f.Code)
		},
	})
}

// incoming is an event as it is posted.
type incoming struct {
	RoutingKey string `json:"routing_key"`
	Event
}

func (p *Pager) enqueue(body []byte) fakehttp.Response {
	if len(body) > maxEvent {
		return refuse(http.StatusRequestEntityTooLarge, "Event is too large", fmt.Sprintf("The event must not be larger than %d bytes", maxEvent))
	}
	var in incoming
	if err := json.Unmarshal(body, &in); err != nil {
		return refuse(http.StatusBadRequest, "Event object is invalid", "The event is not a JSON object of the right form")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if problems := p.check(in); len(problems) > 0 {
		return refuse(http.StatusBadRequest, "Event object is invalid", problems...)
	}
	if p.opts.RoutingKey != "" && in.RoutingKey != p.opts.RoutingKey {
		return refuse(http.StatusBadRequest, "Invalid routing key", "Invalid routing key")
	}
	e := in.Event
	e.RoutingKey = in.RoutingKey
	if e.DedupKey == "" {
		var key [16]byte
		_, _ = rand.Read(key[:]) // never fails
		e.DedupKey = hex.EncodeToString(key[:])
	}
	p.take(e)
	return reply(http.StatusAccepted, map[string]any{
		"status": "success", "message": "Event processed", "dedup_key": e.DedupKey,
	})
}

// check returns what is wrong with an event; the caller holds mu.
func (p *Pager) check(in incoming) []string {
	var problems []string
	fail := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if !p.opts.AnyKeyForm {
		if len(in.RoutingKey) != keyLength {
			fail("Length of 'routing_key' is incorrect (should be %d characters)", keyLength)
		}
		if !alphanumeric.MatchString(in.RoutingKey) {
			fail("'routing_key' cannot contain non-alphanumeric characters.")
		}
	}
	switch {
	case in.Action == "":
		fail("'event_action' is missing or blank")
	case !slices.Contains(actions, in.Action):
		fail("'event_action' is invalid (must be one of the following: %s)", strings.Join(actions, ", "))
	case in.Action != "trigger" && in.DedupKey == "":
		fail("'dedup_key' is missing or blank")
	}
	if utf8.RuneCountInString(in.DedupKey) > maxDedup {
		fail("'dedup_key' is too long (must not be longer than %d characters)", maxDedup)
	}
	if in.Action != "trigger" {
		return problems
	}
	var payload Payload
	if in.Payload != nil {
		payload = *in.Payload
	}
	for _, field := range []struct{ name, value string }{
		{"summary", payload.Summary}, {"source", payload.Source}, {"severity", payload.Severity},
	} {
		if strings.TrimSpace(field.value) == "" {
			fail("'payload.%s' is missing or blank", field.name)
		}
	}
	if utf8.RuneCountInString(payload.Summary) > maxSummary {
		fail("'payload.summary' is too long (must not be longer than %d characters)", maxSummary)
	}
	if payload.Severity != "" && !slices.Contains(severities, payload.Severity) {
		fail("'payload.severity' is invalid (must be one of the following: %s)", strings.Join(severities, ", "))
	}
	for i, link := range in.Links {
		if link.Href == "" {
			fail("'links[%d].href' is missing or blank", i)
		}
	}
	return problems
}

func refuse(status int, message string, problems ...string) fakehttp.Response {
	return reply(status, map[string]any{"status": "invalid event", "message": message, "errors": problems})
}

func reply(status int, doc map[string]any) fakehttp.Response {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // made of strings
	}
	return fakehttp.Response{
		Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: text,
	}
}
