package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// dead enqueues jobs that have failed.
func (b *bench) dead(payload string, opts ...jobs.Option) *jobs.Job {
	b.t.Helper()
	j, err := b.Enqueue(context.Background(), jobs.New(b.dest, json.RawMessage(payload), opts...))
	b.must(err)
	b.place([]*jobs.Job{j}, store.StateFailed)
	return j
}

// What a retry sets is changed, and nothing else, byte for byte.
func TestRetryWithSet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t)
	long := `"` + strings.Repeat("x", 2*store.OutlineAbove) + `"`
	for _, row := range []struct {
		payload string
		set     []jobs.ActOption
		want    string
	}{
		{`{"a":1, "b" : [ 1 ,2.0,{"c":"é"} ] ,"d":9007199254740993}`, []jobs.ActOption{jobs.Set("payload.b.2.c", "x")}, `{"a":1, "b" : [ 1 ,2.0,{"c":"x"} ] ,"d":9007199254740993}`},
		{`{"a": -1.50 }`, []jobs.ActOption{jobs.Set("payload.a", json.RawMessage("2.50")), jobs.Set("payload.new", map[string]int{"n": 1})}, `{"a": 2.50 ,"new":{"n":1}}`},
		{`{}`, []jobs.ActOption{jobs.Set("payload.x", nil)}, `{"x":null}`},
		{`{"a":1,"a":2}`, []jobs.ActOption{jobs.Set("payload.a", 3)}, `{"a":1,"a":3}`},
		{`[true,false]`, []jobs.ActOption{jobs.Set("payload.1", true)}, `[true,true]`},
		{`7`, []jobs.ActOption{jobs.Set("payload", []int{1})}, `[1]`},
		{`7`, []jobs.ActOption{jobs.Set("payload", json.RawMessage(long))}, long},
		{long, []jobs.ActOption{jobs.Set("payload", 1)}, `1`},
	} {
		j := b.dead(row.payload, jobs.Header("X-A", "b"), jobs.Key("alice"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 2}))
		b.must(b.Retry(ctx, j.ID, append(row.set, jobs.Because("wrong"))...))
		got := b.get(j.ID)
		if string(got.Payload) != row.want || got.Status != jobs.Pending || got.Edits != 1 {
			t.Errorf("%.80s became %.80s (%s, edited %d times), want %.80s", row.payload, got.Payload, got.Status, got.Edits, row.want)
		}
		if got.Key != "alice" || got.Request.Headers["X-A"] != "b" || got.Retry.MaxRetries != 2 || !got.CreatedAt.Equal(j.CreatedAt) || len(got.Trace) > 0 {
			t.Errorf("the rest has changed: %+v", got)
		}
		history, err := b.History(ctx, j.ID)
		b.must(err)
		if last := history[len(history)-1]; last.Event != "retried" || !strings.HasPrefix(last.Detail, "set payload") || !strings.HasSuffix(last.Detail, ": wrong") {
			t.Errorf("the history says %+v", last)
		}
		page, err := b.List(ctx, jobs.ListOptions{Filter: jobs.Filter{Destination: b.dest}})
		b.must(err)
		if page.Items[0].ID != j.ID || page.Items[0].Edits != 1 || page.Items[0].Request.Headers["X-A"] != "b" {
			t.Errorf("the list has %+v", page.Items[0])
		}
	}
	j := b.dead(`1`, jobs.Path("/a"), jobs.Header("X-A", "b"))
	b.must(b.Retry(ctx, j.ID, jobs.Set("request.path", "/b"), jobs.Set("request.headers.X-C", "d"), jobs.Set("request.timeout_secs", 9)))
	if r := b.get(j.ID).Request; r.Path != "/b" || r.Headers["X-A"] != "b" || r.Headers["X-C"] != "d" || r.TimeoutSecs != 9 {
		t.Errorf("the request became %+v", r)
	}
	b.place([]*jobs.Job{j}, store.StateFailed)
	b.must(b.Retry(ctx, j.ID, jobs.Set("request.path", "")))
	if got := b.get(j.ID); got.Request.Path != "" || got.Edits != 2 {
		t.Errorf("the request became %+v, edited %d times", got.Request, got.Edits)
	}
}

// A change that does not fit leaves the job as it is, and the error says what to do.
func TestRetryRefusesSet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t, jobs.WithLimits(jobs.Limits{MaxPayloadBytes: 100}), jobs.WithCheck(func(s *jobs.Spec) []jobs.FieldError {
		if strings.Contains(string(s.Payload), "forbidden") {
			return []jobs.FieldError{{Field: "payload", Message: "is forbidden here"}}
		}
		return nil
	}))
	j := b.dead(`{"a":{"b":1},"c":[1]}`)
	many := make([]jobs.ActOption, 21)
	for i := range many {
		many[i] = jobs.Set("payload.a", i)
	}
	for want, set := range map[string][]jobs.ActOption{
		`set: "key" cannot be changed; there are payload, and in the request`:       {jobs.Set("key", "bob")},
		`set: "request" cannot be changed`:                                          {jobs.Set("request", nil)},
		`set: "payload..a" has an empty part`:                                       {jobs.Set("payload..a", 1)},
		`set: payload.x.y: there is no field "x"; set the object around it`:         {jobs.Set("payload.x.y", 1)},
		`set: payload.a.b.c: "c" is looked for in a value that is no object`:        {jobs.Set("payload.a.b.c", 1)},
		`set: payload.c.1: "1" is not an index of the list, which has 1 elements`:   {jobs.Set("payload.c.1", 1)},
		`set: payload.a: the value is not valid JSON`:                               {jobs.Set("payload.a", json.RawMessage("{"))},
		`set: the changed job is not valid: payload: has 116 bytes, at most 100`:    {jobs.Set("payload.a", strings.Repeat("x", 100))},
		`set: the changed job is not valid: payload: is forbidden here`:             {jobs.Set("payload.a", "forbidden")},
		`set: the changed job is not valid: request.timeout_secs: `:                 {jobs.Set("request.timeout_secs", 100_000)},
		`set: the request cannot be changed like this (json: unknown field "pfad")`: {jobs.Set("request.pfad", "/")},
		`set: has 21 paths, at most 20`:                                             many,
		`has more than 200 bytes; set the object around it`:                         {jobs.Set("payload."+strings.Repeat("a", 200), 1)},
	} {
		err := b.Retry(ctx, j.ID, set...)
		if !errors.Is(err, jobs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got := b.get(j.ID); got.Status != jobs.Failed || string(got.Payload) != `{"a":{"b":1},"c":[1]}` || got.Edits != 0 {
		t.Errorf("the job was changed: %s, %s", got.Status, got.Payload)
	}
	if err := b.Cancel(ctx, j.ID, jobs.Set("payload", 1)); !errors.Is(err, jobs.ErrInvalid) {
		t.Errorf("a cancel with a change: %v", err)
	}
	waits := b.enqueue()
	if err := b.Retry(ctx, waits.ID, jobs.Set("payload", 1)); !errors.Is(err, jobs.ErrStatus) || string(b.get(waits.ID).Payload) != "{}" {
		t.Errorf("a job that waits: %v", err)
	}
	if err := b.Retry(ctx, "nobody", jobs.Set("payload", 1)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("no job: %v", err)
	}
}

// A filter changes the jobs that the change fits, and says why if it fits none.
func TestRetryWhereWithSet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t)
	for i := range 50 {
		b.dead(fmt.Sprintf(`{"n":%d}`, i), jobs.ID(fmt.Sprint("n", i)))
	}
	odd := b.dead(`[]`)
	failed := jobs.Filter{Destination: b.dest, Statuses: []jobs.Status{jobs.Failed}}
	if sum, err := b.ActWhere(ctx, jobs.ActionRetry, failed, jobs.Set("payload.x.y", 1)); !errors.Is(err, jobs.ErrInvalid) || sum.Done != 0 || sum.Refused != 51 {
		t.Errorf("a change that fits none: %+v, %v", sum, err)
	}
	if sum, err := b.ActWhere(ctx, jobs.ActionRetry, failed, jobs.Set("payload.x", 1)); err != nil || sum.Done != 50 || sum.Refused != 1 {
		t.Errorf("a change that fits all but one: %+v, %v", sum, err)
	}
	if got := string(b.get("n49").Payload); got != `{"n":49,"x":1}` || b.get(odd.ID).Status != jobs.Failed {
		t.Errorf("became %s; the other one is %s", got, b.get(odd.ID).Status)
	}
}

// Of many that retry a job at once with their own changes one wins, whole.
func TestRetriesWithSetRace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := newBench(t)
	for range 20 {
		j := b.dead(`{"a":0,"b":0}`)
		var racing sync.WaitGroup
		won := make(chan int, 8)
		for i := 1; i <= cap(won); i++ {
			racing.Go(func() {
				err := b.Retry(ctx, j.ID, jobs.Set("payload.a", i), jobs.Set("payload.b", i))
				switch {
				case err == nil:
					won <- i
				case !errors.Is(err, jobs.ErrStatus):
					t.Errorf("retry: %v", err)
				}
			})
		}
		racing.Wait()
		if len(won) != 1 {
			t.Fatalf("%d retries won", len(won))
		}
		i := <-won
		if got, want := string(b.get(j.ID).Payload), fmt.Sprintf(`{"a":%d,"b":%d}`, i, i); got != want {
			t.Errorf("the payload is %s, want %s", got, want)
		}
	}
}
