package jobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// tracer notes what a the function of WithTrace is told.
type tracer struct {
	mu    sync.Mutex
	begun []string            // ids
	ended map[string][]string // by id: "accepted", "duplicate" or the error
}

func (r *tracer) trace(_ context.Context, job *jobs.Job) (carrier map[string]string, end func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, job.ID)
	n := len(r.begun)
	return map[string]string{"traceparent": fmt.Sprintf("trace %d", n)}, func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.ended == nil {
			r.ended = map[string][]string{}
		}
		how := "accepted"
		switch {
		case err != nil:
			how = err.Error()
		case job.Duplicate:
			how = "duplicate"
		}
		r.ended[job.ID] = append(r.ended[job.ID], how)
	}
}

// What that function returns is there for whoever reads or runs the job, stands in asynq's
// task headers, and is nothing that people see.
func TestTraceIsKeptWithTheJob(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r := &tracer{}
		b := benchOn(t, rdb, jobs.WithTrace(r.trace))
		j := b.enqueue(jobs.Key("alice"), jobs.Path("/items/7"), jobs.Costs(map[string]int{"tokens": 7}))
		want := map[string]string{"traceparent": "trace 1"}
		if diff := cmp.Diff(want, j.Trace); diff != "" {
			t.Errorf("in the answer (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(j, b.get(j.ID)); diff != "" {
			t.Errorf("read (-enqueued +read):\n%s", diff)
		}
		info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo(b.queue(), j.ID)
		b.must(err)
		if got := info.Headers["traceparent"]; got != "trace 1" {
			t.Errorf("asynq reads traceparent %q", got)
		}
		run, err := store.JobOf[jobs.Job](&store.Message{ID: j.ID, Queue: b.queue(), Headers: info.Headers}, nil)
		b.must(err)
		if diff := cmp.Diff(want, run.Trace); diff != "" {
			t.Errorf("in the worker (-want +got):\n%s", diff)
		}
		text, err := json.Marshal(j)
		b.must(err)
		if strings.Contains(strings.ToLower(string(text)), "trace") {
			t.Errorf("the JSON form shows it: %s", text)
		}
		if diff := cmp.Diff(map[string][]string{j.ID: {"accepted"}}, r.ended); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// Without the option nothing is written besides.
func TestNoTraceWithoutTheOption(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	j := b.enqueue()
	if j.Trace != nil || b.get(j.ID).Trace != nil {
		t.Errorf("trace %v, read %v; want none", j.Trace, b.get(j.ID).Trace)
	}
	info, err := asynq.NewInspectorFromRedisClient(b.rdb).GetTaskInfo(b.queue(), j.ID)
	b.must(err)
	if len(info.Headers) != 1 || info.Headers[store.HeaderCreated] == "" {
		t.Errorf("headers %v, want only %s", info.Headers, store.HeaderCreated)
	}
}

// Whatever goes wrong, each trace that was begun is ended once, and as its Result says.
func TestEveryTraceEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for n := range 12 { // calls to Redis that come through
		for _, cancels := range []bool{false, true} {
			r := &tracer{}
			ctx, cancel := context.WithCancel(context.Background())
			rdb := server.Client(t)
			if cancels {
				rdb.AddHook(&cancelHook{left: n, cancel: cancel})
			} else {
				dieAfter(rdb, n)
			}
			b := benchOn(t, rdb, jobs.WithTrace(r.trace))
			specs := make([]*jobs.Spec, 2500) // three requests
			for i := range specs {
				specs[i] = jobs.New(b.dest, i)
			}
			results, err := b.EnqueueMany(ctx, specs)
			cancel()
			accepted := 0
			for _, result := range results {
				if result.Job != nil {
					accepted++
				}
			}
			told := 0
			for _, id := range r.begun {
				switch how := r.ended[id]; {
				case len(how) != 1:
					t.Fatalf("after %d calls: a trace was ended %d times: %q", n, len(how), how)
				case how[0] == "accepted":
					told++
				}
			}
			if told != accepted {
				t.Errorf("after %d calls: %d jobs accepted, %d traces say so", n, accepted, told)
			}
			if err == nil && accepted != len(specs) {
				t.Errorf("after %d calls: no error, and %d jobs accepted", n, accepted)
			}
		}
	}
}

// cancelHook cancels a context at a call to Redis.
type cancelHook struct {
	mu     sync.Mutex
	left   int
	cancel context.CancelFunc
}

func (h *cancelHook) count() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left--; h.left < 0 {
		h.cancel()
	}
}

func (h *cancelHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *cancelHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.count()
		return next(ctx, cmd)
	}
}

func (h *cancelHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count()
		return next(ctx, cmds)
	}
}

// What is kept of a carrier is bounded, is text, and touches nothing of the job's own.
func TestBoundsOfATrace(t *testing.T) {
	t.Parallel()
	many, some := map[string]string{}, map[string]string{}
	for i := range 20 {
		name := fmt.Sprintf("x-%02d", i)
		many[name] = "v"
		if i < 8 {
			some[name] = "v"
		}
	}
	for _, tc := range []struct {
		name          string
		carrier, want map[string]string
	}{
		{"nothing", nil, nil},
		{"empty", map[string]string{}, nil},
		{"an empty value", map[string]string{"tracestate": ""}, nil},
		{"no name", map[string]string{"": "v"}, nil},
		{"another format", map[string]string{"b3": "1-2"}, map[string]string{"b3": "1-2"}},
		{"names of ours", map[string]string{"key": "mallory", "path": "/x", "created": "0", "retry": "{}", "b3": "1"}, map[string]string{"b3": "1"}},
		{"no UTF-8", map[string]string{"a": "\xff", "b\xff": "1", "c": "ü"}, map[string]string{"c": "ü"}},
		{"long", map[string]string{"a": strings.Repeat("a", 1025), "b": strings.Repeat("b", 1024), strings.Repeat("c", 65): "1"}, map[string]string{"b": strings.Repeat("b", 1024)}},
		{"many", many, some},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, jobs.WithTrace(func(context.Context, *jobs.Job) (map[string]string, func(error)) { return tc.carrier, nil }))
			j := b.enqueue(jobs.Key("alice"))
			if diff := cmp.Diff(tc.want, j.Trace); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(j, b.get(j.ID)); diff != "" {
				t.Errorf("read (-enqueued +read):\n%s", diff)
			}
		})
	}
}
