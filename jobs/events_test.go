package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// subscribe returns what gives the next event, or the error before it.
func (b *bench) subscribe(o jobs.EventsOptions) (next func() (jobs.Event, error)) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	events, err := b.Events(ctx, o)
	b.must(err)
	pull, stop := iter.Pull2(events)
	b.t.Cleanup(func() {
		cancel()
		for more := true; more; {
			_, _, more = pull() // it ends with its context
		}
		stop()
	})
	return func() (jobs.Event, error) {
		b.t.Helper()
		e, err, more := pull()
		if !more {
			b.t.Fatal("the events have ended")
		}
		return e, err
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":     func(t *testing.T) redis.UniversalClient { return redistest.Database(t).Client(t) },
		"cluster":   func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
		"miniredis": func(t *testing.T) redis.UniversalClient { return redistest.Embedded(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := benchOn(t, client(t))
			bare, whole := b.subscribe(jobs.EventsOptions{}), b.subscribe(jobs.EventsOptions{Destination: b.dest, Responses: true})
			answered := b.enqueue(jobs.ID("a"), jobs.Key("alice"), jobs.Batch("monday"), jobs.Delay(time.Hour))
			b.set("a", store.FieldAttempt, 2, store.FieldResponseStatus, 422, store.FieldResponseBody, strings.Repeat("x", 5000))
			b.must(b.Cancel(t.Context(), "a"))
			b.enqueue(jobs.ID("b"), jobs.TTL(0), jobs.Prioritize(jobs.PriorityLow))
			var ids []string
			for _, next := range []func() (jobs.Event, error){bare, whole} {
				a, err := next()
				b.must(err)
				want := jobs.Event{
					ID: a.ID, Job: "a", Destination: b.dest, Key: "alice", Batch: "monday", Status: jobs.Cancelled, Attempt: 2,
					Response: &jobs.Response{Status: 422}, LastError: "cancelled",
				}
				if ids = append(ids, a.ID); len(ids) == 2 {
					want.Response.Body = strings.Repeat("x", 4096)
				}
				if diff := cmp.Diff(want, a, cmpopts.IgnoreFields(a, "At")); diff != "" || a.At.Before(answered.CreatedAt) {
					t.Errorf("at %v (-want +got)\n%s", a.At, diff)
				}
				if e, err := next(); err != nil || e.Job != "b" || e.Status != jobs.Expired || e.Response != nil {
					t.Errorf("then %+v, %v", e, err)
				}
			}
			if ids[0] != ids[1] {
				t.Errorf("one event has the ids %v", ids)
			}
			// From an earlier time on, as after a break.
			again := b.subscribe(jobs.EventsOptions{Since: answered.CreatedAt})
			if e, err := again(); err != nil || e.Job != "a" || e.ID != ids[0] {
				t.Errorf("again %+v, %v", e, err)
			}
		})
	}
}

// Many events come in order and once, also around an error, which is reported.
func TestEventsAfterAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	next := b.subscribe(jobs.EventsOptions{Destination: b.dest})
	const many = 1200 // more than are read at once
	for i := range many {
		b.enqueue(jobs.ID(fmt.Sprint("j", i)), jobs.TTL(0))
	}
	for i := range many {
		if e, err := next(); err != nil || e.Job != fmt.Sprint("j", i) {
			t.Fatalf("event %d: %+v, %v", i, e, err)
		}
	}
	stream, kept := store.EventsKey(b.queue()), "kept"
	b.must(b.rdb.Rename(t.Context(), stream, kept).Err())
	b.must(b.rdb.Set(t.Context(), stream, "no stream", 0).Err())
	for {
		if _, err := next(); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Fatal("no error")
			}
			break
		}
	}
	b.must(b.rdb.Rename(t.Context(), kept, stream).Err())
	b.enqueue(jobs.ID("last"), jobs.TTL(0))
	for {
		if e, err := next(); err == nil {
			if e.Job != "last" {
				t.Errorf("after the error: %+v", e)
			}
			break
		}
	}
	if _, err := b.Events(t.Context(), jobs.EventsOptions{Destination: "No"}); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a destination that is not valid: %v", err)
	}
}

func ExampleClient_Events() {
	client, stop := exampleClient()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := client.Events(ctx, jobs.EventsOptions{Destination: "deviantart", Responses: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err = client.Enqueue(ctx, jobs.New("deviantart", nil, jobs.ID("post-7"), jobs.TTL(0))); err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range events {
		if err != nil {
			fmt.Println(err) // of Redis: the loop may go on
			continue
		}
		fmt.Println(e.Job, e.Status)
		break
	}
	// Output: post-7 expired
}
