package callbacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Each job event makes a callback, with all that is known.
func TestEachEventIsDelivered(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, nil, secretOne, secretTwo)
	running := make(chan struct{})
	b.start(worker{
		receivers: []Receiver{e.receiver("shop")},
		handle: func(ctx context.Context, job *jobs.Job) error {
			switch job.Key {
			case "ann":
				job.Response = &jobs.Response{Status: 201, Body: `{"id":"é <7>"}`}
				job.Output = json.RawMessage(`{"itemid":7}`)
				if job.RescheduleCount == 0 {
					return jobs.Reschedule(0)
				}
				return nil
			case "bob":
				job.Response = &jobs.Response{Status: 400, Body: "no"}
				return jobs.Discard(errors.New("answered 400 Bad Request"))
			case "eve":
				job.Response = &jobs.Response{Status: 500, Body: strings.Repeat("é", 2000)}
				return errors.New("answered 500: " + strings.Repeat("x", 500))
			case "max":
				close(running)
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		},
	})
	ctx := t.Context()
	later := jobs.At(time.Now().Add(time.Hour))
	ids := map[string]string{}
	ids["completed"] = b.enqueue("shop", jobs.Key("ann"), jobs.Batch("b1"), jobs.Prioritize(jobs.PriorityHigh))
	ids["failed"] = b.enqueue("shop", jobs.Key("bob"))
	ids["its child"] = b.enqueue("shop", jobs.After(b.enqueue("shop", later, jobs.ID("parent"))))
	ids["its grandchild"] = b.enqueue("shop", jobs.After(ids["its child"]), jobs.Prioritize(jobs.PriorityLow))
	ids["exhausted"] = b.enqueue("shop", jobs.Key("eve"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second}))
	ids["cancelled while it waits"] = b.enqueue("shop", later)
	ids["cancelled while it runs"] = b.enqueue("shop", jobs.Key("max"))
	ids["expired by itself"] = b.enqueue("shop", later, jobs.TTL(time.Second))
	ids["expired at once"] = b.enqueue("shop", jobs.TTL(0), jobs.Prioritize(jobs.PriorityLow))
	ids["expired by hand"] = b.enqueue("shop", later, jobs.TTL(time.Hour))
	<-running
	for _, name := range []string{"cancelled while it waits", "cancelled while it runs"} {
		if err := b.client.Cancel(ctx, ids[name], jobs.By("ann")); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.client.Cancel(ctx, "parent"); err != nil {
		t.Fatal(err)
	}
	if err := b.client.MarkExpired(ctx, ids["expired by hand"]); err != nil {
		t.Fatal(err)
	}
	ids["a parent"] = "parent"
	e.await("all ends", func() bool { return len(e.taken()) >= len(ids) })
	taken := e.taken()
	for name, id := range ids {
		calls := taken[id]
		if len(calls) != 1 {
			t.Errorf("%s was delivered %d times", name, len(calls))
			continue
		}
		job, err := b.client.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		want := event{
			Type: "job." + string(job.Status), Timestamp: *job.EndedAt,
			Data: ended{
				ID: id, Destination: "shop", Key: job.Key, Batch: job.Batch, Status: string(job.Status), Attempt: job.Attempt,
				RescheduleCount: job.RescheduleCount, Crashes: job.Crashes, CreatedAt: &job.CreatedAt, EndedAt: *job.EndedAt, LastError: job.LastError,
			},
		}
		if want.Data.Output = job.Output; job.Output == nil {
			want.Data.Output = json.RawMessage("null")
		}
		if r := job.Response; r != nil {
			want.Data.Response = &response{Status: r.Status, Body: &r.Body}
		}
		if job.Status == jobs.Completed {
			want.Data.LastError = ""
		}
		if diff := cmp.Diff(want, calls[0].body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if prefix := "shop:" + string(job.Priority) + ":"; !strings.HasPrefix(calls[0].id, prefix) || !jobs.ValidName(calls[0].id) {
			t.Errorf("%s: id %s, want %s…", name, calls[0].id, prefix)
		}
	}
	for name, want := range map[string]string{
		"completed": "completed", "failed": "failed", "exhausted": "failed", "a parent": "cancelled", "its child": "cancelled",
		"its grandchild": "cancelled", "cancelled while it waits": "cancelled", "cancelled while it runs": "cancelled",
		"expired by itself": "expired", "expired at once": "expired", "expired by hand": "expired",
	} {
		if got := taken[ids[name]][0].body.Data.Status; got != want {
			t.Errorf("%s was delivered as %s", name, got)
		}
	}
	if got := taken[ids["completed"]][0].body.Data; got.RescheduleCount != 1 || got.Batch != "b1" || got.Key != "ann" || got.Response.Status != 201 || *got.Response.Body != `{"id":"é <7>"}` {
		t.Errorf("completed: %+v", got)
	}
	if got := string(taken[ids["completed"]][0].body.Data.Output); got != `{"itemid":7}` {
		t.Errorf("output %s", got)
	}
	if got := taken[ids["exhausted"]][0].body.Data; got.Attempt != 1 || len(*got.Response.Body) != 4000 {
		t.Errorf("exhausted: %+v", got)
	}
}

// The body as it is sent, byte for byte: unknown values are null, and only the payload is
// left out.
func TestBody(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 10, 0, 0, 123e6, time.UTC)
	created := at.Add(-time.Minute)
	end := store.Event{
		Queue: "tidegate:shop:high", ID: "a", Status: "failed", At: at, Key: "ann", Batch: "b1", Attempt: 3, Reschedules: 2,
		Crashes: 1, ResponseStatus: 500, LastError: "answered 50",
	}
	job := func(change func(*jobs.Job)) *jobs.Job {
		j := &jobs.Job{ID: "a", Status: jobs.Failed, CreatedAt: created, EndedAt: &at, LastError: "answered 500", Response: &jobs.Response{Status: 500, Body: "no"}}
		change(j)
		return j
	}
	const head = `{"type":"job.failed","timestamp":"2026-11-21T10:00:00.123Z","data":{"id":"a","destination":"shop","key":"ann","batch":"b1",` +
		`"status":"failed","attempt":3,"reschedule_count":2,"crashes":1,`
	later := at.Add(time.Hour)
	for _, tc := range []struct {
		name string
		job  *jobs.Job
		want string
	}{
		{"its record is as it ended", job(func(*jobs.Job) {}), `"created_at":"2026-11-21T09:59:00.123Z","ended_at":"2026-11-21T10:00:00.123Z","last_error":"answered 500","response":{"status":500,"body":"no"},"output":null}}`},
		{"its record is gone", nil, `"created_at":null,"ended_at":"2026-11-21T10:00:00.123Z","last_error":"answered 50","response":{"status":500,"body":null},"output":null}}`},
		{"it was run again", job(func(j *jobs.Job) {
			j.EndedAt, j.Status, j.Response = &later, jobs.Completed, &jobs.Response{Status: 200, Body: "ok"}
		}), `"created_at":"2026-11-21T09:59:00.123Z","ended_at":"2026-11-21T10:00:00.123Z","last_error":"answered 50","response":{"status":500,"body":null},"output":null}}`},
		{"it waits again", job(func(j *jobs.Job) { j.EndedAt, j.Status, j.Response = nil, jobs.Pending, nil }), `"created_at":"2026-11-21T09:59:00.123Z","ended_at":"2026-11-21T10:00:00.123Z","last_error":"answered 50","response":{"status":500,"body":null},"output":null}}`},
		{"another one has its id", job(func(j *jobs.Job) { j.CreatedAt = later }), `"created_at":null,"ended_at":"2026-11-21T10:00:00.123Z","last_error":"answered 50","response":{"status":500,"body":null},"output":null}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := json.Marshal(eventOf(end, tc.job))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(head+tc.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	bare := store.Event{Queue: "tidegate:shop", ID: "b", Status: "completed", At: at.Truncate(time.Second)}
	got, err := json.Marshal(eventOf(bare, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"type":"job.completed","timestamp":"2026-11-21T10:00:00Z","data":{"id":"b","destination":"shop","key":"","batch":"","status":"completed",` +
		`"attempt":0,"reschedule_count":0,"crashes":0,"created_at":null,"ended_at":"2026-11-21T10:00:00Z","last_error":"","response":null,"output":null}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

// Events before the first relay make no callbacks, even if a stream exists for others.
func TestFirstRunSkipsEarlierEvents(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	ctx := t.Context()
	queue := store.DefaultNamespace.Queue("shop", store.Default)
	if _, err := store.WantEvents(ctx, b.rdb, queue); err != nil {
		t.Fatal(err)
	}
	before := b.many("shop", 3)
	for _, id := range before {
		if err := b.client.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.rdb.XLen(ctx, store.EventsKey(queue)).Val(); n != 3 {
		t.Fatalf("%d entries in the stream, want 3", n)
	}
	waiting := b.many("shop", 20) // they end from now on
	e := listen(t, nil)
	_, stop := b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	b.awaitAll(e, append(waiting, b.many("shop", 5)...)...)
	stop()
	// A second run goes on where the first one stopped.
	missed := b.many("shop", 3)
	for _, id := range missed {
		if err := b.client.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	b.awaitAll(e, missed...)
	if n := len(e.all()); n != 28 {
		t.Errorf("%d calls, want 28", n)
	}
}

// A relay that dies between the enqueue and the mark of how far it has come is repeated
// by another one: the callbacks have the same ids, and are delivered once.
func TestRelayDies(t *testing.T) {
	t.Parallel()
	for _, delivered := range []bool{false, true} {
		t.Run(fmt.Sprintf("delivered meanwhile is %v", delivered), func(t *testing.T) {
			t.Parallel()
			b := newHarness(t)
			ctx := t.Context()
			e := listen(t, nil)
			dead, stop := b.start(worker{receivers: []Receiver{e.receiver("shop")}, noDelivery: true})
			ids := b.many("shop", 250)
			b.eventually("that all have ended", func() bool { return b.counts("shop", jobs.Completed) == len(ids) })
			stop() // it may have relayed some, or all of them
			left := b.many("shop", 30)
			for _, id := range left {
				if err := b.client.Cancel(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			relay := newRelay(dead, "shop", store.DefaultNamespace.Queue("shop", store.Default))
			if err := relay.hold(ctx); err != nil || !relay.mine {
				t.Fatalf("the lock: %v, mine %v", err, relay.mine)
			}
			messages, err := relay.read(ctx)
			if err != nil || len(messages) == 0 {
				t.Fatalf("read %d entries: %v", len(messages), err)
			}
			specs, err := dead.specs(ctx, "shop", store.Default, store.ParseEvents(relay.queue, messages))
			if err != nil {
				t.Fatal(err)
			}
			if err := relay.enqueue(ctx, specs); err != nil {
				t.Fatal(err)
			}
			made := b.callbacks()
			for _, spec := range specs {
				if made[spec.ID] == nil {
					t.Fatalf("%s was not enqueued", spec.ID)
				}
			}
			// It is dead now, and its lock runs out.
			if delivered {
				b.start(worker{receivers: []Receiver{e.receiver("shop")}, noRelay: true, noJobs: true})
				e.await("those that were enqueued", func() bool { return len(e.all()) >= len(made) })
			}
			if err := b.rdb.Del(ctx, store.EventsRelayKey(relay.queue)).Err(); err != nil {
				t.Fatal(err)
			}
			b.start(worker{receivers: []Receiver{e.receiver("shop")}, noJobs: true})
			b.awaitAll(e, append(ids, left...)...)
			if n := len(b.callbacks()); n != 280 {
				t.Errorf("%d callbacks, want 280", n)
			}
		})
	}
}

func (b *harness) counts(destination string, s jobs.Status) int {
	b.t.Helper()
	page, err := b.client.List(b.t.Context(), jobs.ListOptions{Filter: jobs.Filter{Destination: destination, Statuses: []jobs.Status{s}}, Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(page.Items)
}

// Two workers relay the same streams at the same time, because the lock is lost again and
// again: each event is delivered once.
func TestTwoRelaysAtOnce(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	ctx := t.Context()
	shop, blog := listen(t, nil), listen(t, nil)
	receivers := []Receiver{shop.receiver("shop"), blog.receiver("blog")}
	for range 2 {
		b.start(worker{receivers: receivers, change: func(c *Callbacks) {
			for _, r := range c.relays {
				r.lease = 30 * time.Millisecond
			}
		}})
	}
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				for _, d := range []string{"shop", "blog"} {
					for _, q := range store.DefaultNamespace.Queues(d) {
						b.rdb.Del(ctx, store.EventsRelayKey(q))
					}
				}
			}
		}
	}()
	var ofShop, ofBlog []string
	for i := range 10 {
		ofShop = append(ofShop, b.many("shop", 100, jobs.Prioritize([]jobs.Priority{"high", "default", "low"}[i%3]))...)
		ofBlog = append(ofBlog, b.many("blog", 20)...)
	}
	b.awaitAll(shop, ofShop...)
	b.awaitAll(blog, ofBlog...)
	close(stop)
	<-stopped
	if a, b := len(shop.all()), len(blog.all()); a != 1000 || b != 200 {
		t.Errorf("%d and %d calls, want 1000 and 200", a, b)
	}
}

// Entries that others have written are passed over, however many there are.
func TestForeignEntries(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, nil)
	b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	if _, err := b.rdb.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for range 3 * batch {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: store.EventsKey(store.DefaultNamespace.Queue("shop", store.Default)), Values: []string{"what", "ever"}})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	b.awaitAll(e, b.enqueue("shop"))
}

// While Redis is away nothing is lost, and it is logged once.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	b := newHarness(t, redistest.WithAOF())
	e := listen(t, nil)
	b.start(worker{receivers: []Receiver{e.receiver("shop"), e.receiver("blog")}})
	first := b.many("shop", 20)
	b.awaitAll(e, first...)
	b.server.Stop()
	b.eventually("a line in the log", func() bool { return strings.Contains(b.log.String(), "callbacks wait") })
	b.server.Restart()
	// The client of Redis has its own view of that for a second.
	b.eventually("an answer of Redis", func() bool { return b.rdb.Ping(t.Context()).Err() == nil })
	second := b.many("shop", 20)
	b.eventually("that it goes on", func() bool { return strings.Contains(b.log.String(), "callbacks go on") })
	b.awaitAll(e, append(first, second...)...)
	for _, line := range []string{"callbacks wait", "callbacks go on"} {
		if n := strings.Count(b.log.String(), line); n != 1 {
			t.Errorf("%q was logged %d times, want once", line, n)
		}
	}
}

// A Redis that has lost all it had begins anew.
func TestRedisEmptied(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, nil)
	b.start(worker{receivers: []Receiver{e.receiver("shop")}, change: func(c *Callbacks) {
		for _, r := range c.relays {
			r.wantEvery = 100 * time.Millisecond
		}
	}})
	b.awaitAll(e, b.many("shop", 5)...)
	if err := b.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	b.eventually("that the stream is there again", func() bool {
		relayed, err := store.Relayed(t.Context(), b.rdb, store.DefaultNamespace.Queue("shop", store.Default))
		return err == nil && relayed != ""
	})
	b.awaitAll(e, b.many("shop", 5)...)
}

// How a callback is enqueued: when it is tried again, and for how long.
func TestCallbackSpec(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, status(http.StatusTeapot))
	b.start(worker{receivers: []Receiver{e.receiver("shop")}})
	b.enqueue("shop", jobs.Prioritize(jobs.PriorityLow))
	e.await("a call", func() bool { return len(e.all()) == 1 })
	var got *jobs.Job
	b.eventually("its retry", func() bool {
		for _, j := range b.callbacks() {
			got = j
		}
		return got != nil && got.Status == jobs.RetryPending
	})
	want := jobs.RetryPolicy{MaxRetries: 100, InitialDelay: 5 * time.Second, BackoffMultiplier: 2, MaxDelay: 3600 * time.Second, RetryOn: []jobs.Trigger{"timeout", "failure", "explicit"}}
	if diff := cmp.Diff(want, *got.Retry); diff != "" {
		t.Error(diff)
	}
	if got.Key != "shop" || got.Priority != jobs.PriorityDefault || got.LastError != "the receiver answered 418 I'm a teapot" || got.Response.Status != 418 {
		t.Errorf("%+v", got)
	}
	if ttl := got.ExpiresAt.Sub(got.CreatedAt); ttl < GiveUpAfter-time.Second || ttl > GiveUpAfter+time.Second {
		t.Errorf("it expires after %s, want %s", ttl, GiveUpAfter)
	}
	if wait := got.NextRetryAt.Sub(*got.StartedAt); wait < 4*time.Second || wait > 40*time.Second {
		t.Errorf("it is tried again after %s, want about 5 s", wait)
	}
	// The retries last as long as it does.
	sum := time.Duration(0)
	for i := range want.MaxRetries {
		sum += want.DelayWith(i, 0)
	}
	if sum < GiveUpAfter {
		t.Errorf("retries last %s, less than %s", sum, GiveUpAfter)
	}
}
