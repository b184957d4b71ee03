package alerts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
)

// A gateway answers 504 to all, though Slack takes what it is sent: it is sent again, but rarely.
func TestLostAnswersAreNoFlood(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	b.trip("shop")
	b.slack.SetFault(fakehttp.WithStatus(http.StatusGatewayTimeout).AfterActing())
	b.play(time.Hour)
	if n := len(b.sent()); n > 20 {
		t.Errorf("posted %d times in an hour", n)
	}
}

// A limit of edits is no limit of posts.
func TestLimitsOfOtherMethods(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	id := b.trip("shop")
	b.play(time.Minute)
	b.slack.SetFault(fakehttp.RateLimited(time.Minute).On("chat.update").During(time.Hour))
	b.reset("shop")
	b.play(2 * time.Minute)
	same(t, "channel", []string{id + ".message", id + ".recovery"}, b.sent())
	same(t, "gates", 0, len(b.gates))
	b.play(2 * time.Hour)
	same(t, "edits", 1, b.channel()[0].Edits)
}

// Slack hangs while forty breakers open: three of the four slots wait for it, and
// PagerDuty has the fourth.
func TestPagerDutyDoesNotWaitForSlack(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, func(o *setup) { o.OpenTooLong = time.Nanosecond })
	entered, release := make(chan struct{}, 100), make(chan struct{})
	b.line.instead = func(req *http.Request) (*http.Response, error) {
		if !strings.Contains(req.URL.Path, "/api/") {
			return nil, nil //nolint:nilnil // the call goes its way
		}
		entered <- struct{}{}
		<-release
		return nil, context.DeadlineExceeded
	}
	for i := range 40 {
		b.trip(fmt.Sprint("d", i))
	}
	b.moveTo(start.Add(time.Second))
	b.fetch()
	var hanging sync.WaitGroup
	putOff := make(chan error, len(b.tasks))
	for _, task := range b.tasks {
		if strings.HasSuffix(task.job.ID, ".opened.slack") {
			hanging.Go(func() { putOff <- b.workers[0].Publish(t.Context(), task.job) })
		}
	}
	for range concurrency - 1 {
		<-entered
	}
	for range 37 {
		later, ok := errors.AsType[*jobs.RescheduleError](<-putOff)
		if !ok || later.Delay != time.Second {
			t.Fatalf("a job without a slot: %v", later)
		}
	}
	for _, task := range b.tasks {
		if task.job.Key == "pagerduty" {
			if err := b.workers[0].Publish(t.Context(), task.job); err != nil {
				t.Errorf("%s: %v", task.job.ID, err)
			}
			if task.job.Priority != jobs.PriorityHigh {
				t.Errorf("%s has priority %s", task.job.ID, task.job.Priority)
			}
		}
	}
	same(t, "pages", 40, len(b.pager.Open()))
	close(release)
	hanging.Wait()
}

// The publisher's own time is up while Slack is slow: the job comes back. It is
// shutting down: the job is the publisher's.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]string{context.DeadlineExceeded: "*jobs.RescheduleError", context.Canceled: "cancelled"} {
		b := newHarness(t, 1, withoutPager)
		b.trip("shop")
		b.fetch()
		ctx, cancel := context.WithCancel(t.Context())
		if errors.Is(cause, context.DeadlineExceeded) {
			ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(200*time.Millisecond))
		}
		b.line.instead = func(req *http.Request) (*http.Response, error) {
			if errors.Is(cause, context.Canceled) {
				cancel()
			}
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		err := b.workers[0].Publish(ctx, b.tasks[0].job)
		got := fmt.Sprintf("%T", err)
		if errors.Is(err, context.Canceled) {
			got = "cancelled"
		}
		same(t, cause.Error(), want, got)
		cancel()
	}
}

// A message that Slack refuses for good does not keep those of other incidents back.
func TestFailedMessageBlocksNoOther(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"invalid_blocks", "msg_too_long"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			b := newHarness(t, 1, withoutPager)
			first := b.trip("shop")
			b.play(time.Minute)
			b.reset("shop")
			b.line.instead = func(req *http.Request) (*http.Response, error) {
				// The first destination gets no further message.
				if err := req.ParseForm(); err != nil {
					return nil, err
				}
				text := req.PostForm.Encode()
				req.Body = http.NoBody
				if strings.HasSuffix(req.URL.Path, "chat.postMessage") && strings.Contains(text, first) {
					return answer(http.StatusOK, `{"ok":false,"error":"`+code+`"}`, "Content-Type", "application/json")(req)
				}
				again, err := http.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), strings.NewReader(text))
				if err != nil {
					return nil, err
				}
				again.Header = req.Header
				return b.line.next.RoundTrip(again)
			}
			b.play(20 * time.Minute)
			second := b.trip("shop")
			b.play(25 * time.Minute)
			same(t, "channel", []string{first + ".message", second + ".message"}, b.sent())
		})
	}
}
