package alerts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
)

// faults are the ways in which Slack can fail for a while.
var faults = map[string]fakehttp.Fault{
	"429 with a hint":         fakehttp.RateLimited(30 * time.Second),
	"429 without a hint":      fakehttp.RateLimitedBare(),
	"429 with a date":         {Kind: fakehttp.Status, Status: http.StatusTooManyRequests, RetryAfter: "Wed, 21 Oct 2026 07:28:00 GMT"},
	"ok:false, ratelimited":   fakehttp.WithError("ratelimited"),
	"ok:false, internal":      fakehttp.WithError("internal_error"),
	"ok:false, a new code":    fakehttp.WithError("something_new"),
	"status 500":              fakehttp.WithStatus(http.StatusInternalServerError),
	"a gateway's page, 502":   fakehttp.HTML(http.StatusBadGateway),
	"a portal's page, 200":    fakehttp.HTML(http.StatusOK),
	"an empty answer, 200":    {Kind: fakehttp.Status, Status: http.StatusOK, Body: "{}", ContentType: "application/json"},
	"an answer without place": {Kind: fakehttp.Status, Status: http.StatusOK, Body: `{"ok":true}`, ContentType: "application/json"},
	"no answer":               fakehttp.Hanging(),
	"a broken connection":     fakehttp.Dropping(),
}

// isClear is true if a fault certainly had no effect.
func isClear(f fakehttp.Fault) bool {
	return f.Status == http.StatusTooManyRequests || f.Code == "ratelimited" || f.Code == "something_new"
}

// Whatever fails at whatever step, everything is sent afterwards, in order. What may have arrived is sent again: a
// message comes twice rather than not at all.
func TestFaultsAtEachStep(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		for _, acts := range []bool{false, true} {
			if acts && isClear(fault) {
				continue
			}
			t.Run(fmt.Sprintf("%s, acting %v", name, acts), func(t *testing.T) {
				t.Parallel()
				b := newHarness(t, 2)
				b.line.hangs = fault.Kind == fakehttp.Hang
				fail := func(methods ...string) {
					for _, method := range methods {
						f := fault.On(method).Times(2)
						f.Acts = acts
						b.slack.SetFault(f)
					}
				}
				fail("chat.postMessage")
				id := b.trip("shop")
				b.play(15*time.Minute - time.Millisecond)
				same(t, "before the page", 1, len(slices.Compact(b.sent())))
				fail("chat.postMessage")
				b.play(20 * time.Minute)
				fail("chat.postMessage", "chat.update")
				b.reset("shop")
				b.play(time.Hour)
				b.toldInOrder(id, !acts)
				same(t, "pages", []string{"trigger " + id + " +15m0s", "resolve " + id + " +20m0s"}, b.paged())
				if left := b.waiting(); len(left) > 0 {
					t.Errorf("jobs are left: %v", left)
				}
				met := 0
				for _, r := range b.slack.Requests() {
					if r.Fault != "" {
						met++
					}
				}
				same(t, "calls that went wrong", 8, met)
			})
		}
	}
}

// toldInOrder checks what is in the channel of an incident that was paged and is over.
func (b *harness) toldInOrder(id string, once bool) {
	b.t.Helper()
	var got []string
	message := ""
	for _, s := range b.channel() {
		if !strings.HasPrefix(s.ID, id+".") {
			continue
		}
		if once || !slices.Contains(got, s.ID) {
			got = append(got, s.ID)
		}
		switch s.ID {
		case id + ".message":
			message = s.Text // the last one is updated
		case id + ".page":
			if !s.Broadcast || s.Reply != id+".message" {
				b.t.Errorf("the page is %+v", s)
			}
		default:
			if s.Reply != id+".message" {
				b.t.Errorf("%s is no reply", s.ID)
			}
		}
	}
	if !strings.Contains(message, "was closed by hand after 20 min") {
		b.t.Errorf("the message says %q at the end", message)
	}
	same(b.t, "channel", []string{id + ".message", id + ".page", id + ".recovery"}, got)
}
