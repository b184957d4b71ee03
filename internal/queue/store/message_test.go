package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// binary holds every byte once, so nothing may treat it as text.
var binary = func() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

// same compares messages and what asynq makes of them: nil is as good as empty,
// and bytes are compared as a whole, which is what makes large ones bearable.
var same = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal)),
}

// What asynq's client writes is decoded to the values that it was given.
func TestDecodeWhatAsynqWrites(t *testing.T) {
	t.Parallel()
	const minute = 60 * time.Second
	manyHeaders := map[string]string{}
	for i := range 100 {
		manyHeaders[fmt.Sprintf("header-%d", i)] = strings.Repeat("v", i)
	}
	for _, tc := range []struct {
		name    string
		payload []byte
		headers map[string]string
		opts    []asynq.Option
		want    store.Message
	}{
		{
			name: "asynq's defaults",
			want: store.Message{Retry: 25, Timeout: 1800},
		},
		{
			name: "JSON", payload: []byte(`{"a":"ü"}`), headers: map[string]string{"key": "alice"},
			opts: []asynq.Option{asynq.MaxRetry(store.MaxRetry), asynq.Timeout(store.TaskTimeout * time.Second), asynq.Retention(24 * time.Hour)},
			want: store.Message{Retry: math.MaxInt32, Timeout: 604800, Retention: 86400},
		},
		{
			name: "empty payload", payload: []byte{},
			want: store.Message{Retry: 25, Timeout: 1800},
		},
		{
			name: "binary payload", payload: binary, opts: []asynq.Option{asynq.MaxRetry(0)},
			want: store.Message{Timeout: 1800},
		},
		{
			name: "payload of 1 MiB", payload: bytes.Repeat([]byte{0xff, 0, 'x', '"'}, 1<<18),
			want: store.Message{Retry: 25, Timeout: 1800},
		},
		{
			name:    "headers with empty, long and foreign texts",
			headers: map[string]string{"": "no name", "empty": "", "long": strings.Repeat("é", 70000), "日本": "語", "line": "a\r\nb\x00c"},
			want:    store.Message{Retry: 25, Timeout: 1800},
		},
		{
			name: "many headers", headers: manyHeaders,
			want: store.Message{Retry: 25, Timeout: 1800},
		},
		{
			// asynq's own overflow: a negative number takes ten bytes.
			name: "negative retry", opts: []asynq.Option{asynq.MaxRetry(math.MaxInt32 + 1)},
			want: store.Message{Retry: math.MinInt32, Timeout: 1800},
		},
		{
			name: "deadline instead of a timeout, which is passed over",
			opts: []asynq.Option{asynq.Deadline(time.Now().Add(minute)), asynq.Unique(minute)},
			want: store.Message{Retry: 25},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Shared(t).Client(t)
			queue, id := redistest.Name(t, "q"), redistest.Name(t, "id")
			opts := append([]asynq.Option{asynq.Queue(queue), asynq.TaskID(id)}, tc.opts...)
			if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTaskWithHeaders("a:type", tc.payload, tc.headers), opts...); err != nil {
				t.Fatal(err)
			}
			want := tc.want
			want.Type, want.ID, want.Queue, want.Payload, want.Headers = "a:type", id, queue, tc.payload, tc.headers
			got := stored(t, rdb, queue, id)
			if diff := cmp.Diff(&want, got, same); diff != "" {
				t.Errorf("decoded message (-want +got):\n%s", diff)
			}
		})
	}
}

// What asynq's server writes back after a failure is decoded too.
func TestDecodeWhatAsynqWritesBack(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	queue, id := redistest.Name(t, "q"), redistest.Name(t, "id")
	task := asynq.NewTaskWithHeaders("a:type", []byte("[1]"), map[string]string{"k": "v"})
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task, asynq.Queue(queue), asynq.TaskID(id), asynq.MaxRetry(7)); err != nil {
		t.Fatal(err)
	}
	serve(t, rdb, queue, func(context.Context, *asynq.Task) error { return errors.New("boom: é") })
	redistest.Eventually(t, "the task waits for its retry", func() bool {
		return rdb.ZCard(context.Background(), store.RetryKey(queue)).Val() == 1
	})
	want := &store.Message{
		Type: "a:type", ID: id, Queue: queue, Payload: []byte("[1]"), Headers: map[string]string{"k": "v"},
		Retry: 7, Retried: 1, ErrorMsg: "boom: é", Timeout: 1800,
	}
	if diff := cmp.Diff(want, stored(t, rdb, queue, id)); diff != "" {
		t.Errorf("decoded message (-want +got):\n%s", diff)
	}
}

// What AppendTo writes is to asynq's tools and to a plain asynq server a task
// like any other.
func TestAsynqReadsWhatAppendToWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		msg  store.Message
	}{
		{"least", store.Message{Retry: 1, Timeout: 60}},
		{"job", store.Message{
			Payload: []byte(`{"text":"hello"}`), Headers: map[string]string{"created": "1700000000000", "key": "alice", "empty": ""},
			Retry: store.MaxRetry, Timeout: store.TaskTimeout, Retention: 86400,
		}},
		{"everything", store.Message{
			Payload: binary, Headers: map[string]string{"headers": `{"X-A":"é"}`, "long": strings.Repeat("x", 1<<16)},
			Retry: store.MaxRetry, Retried: 2, ErrorMsg: "boom", Timeout: 1, Retention: 1 << 40,
		}},
		{"large payload", store.Message{Payload: bytes.Repeat(binary, 4096), Retry: 3, Timeout: 60, Retention: 60}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			rdb := redistest.Shared(t).Client(t)
			msg := tc.msg
			msg.Type, msg.Queue, msg.ID = store.TaskType, store.DefaultNamespace.Queue(redistest.Name(t, "d"), store.High), redistest.Name(t, "id")
			if _, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.SAdd(ctx, store.QueuesKey, msg.Queue)
				p.HSet(ctx, store.TaskKey(msg.Queue, msg.ID), store.FieldMsg, msg.AppendTo(nil), store.FieldState, store.StatePending)
				p.LPush(ctx, store.PendingKey(msg.Queue), msg.ID)
				return nil
			}); err != nil {
				t.Fatal(err)
			}

			info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo(msg.Queue, msg.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := &asynq.TaskInfo{
				ID: msg.ID, Queue: msg.Queue, Type: store.TaskType, Payload: msg.Payload, Headers: msg.Headers,
				State: asynq.TaskStatePending, MaxRetry: int(msg.Retry), Retried: int(msg.Retried), LastErr: msg.ErrorMsg,
				Timeout: time.Duration(msg.Timeout) * time.Second, Retention: time.Duration(msg.Retention) * time.Second,
			}
			if diff := cmp.Diff(want, info, same, cmpopts.IgnoreFields(asynq.TaskInfo{}, "NextProcessAt")); diff != "" {
				t.Errorf("asynq's inspector (-want +got):\n%s", diff)
			}

			type run struct {
				ID, Queue, Type string
				Payload         []byte
				Headers         map[string]string
				Retried, Limit  int
			}
			ran := make(chan run, 1)
			serve(t, rdb, msg.Queue, func(ctx context.Context, task *asynq.Task) error {
				r := run{Type: task.Type(), Payload: task.Payload(), Headers: task.Headers()}
				r.ID, _ = asynq.GetTaskID(ctx)
				r.Queue, _ = asynq.GetQueueName(ctx)
				r.Retried, _ = asynq.GetRetryCount(ctx)
				r.Limit, _ = asynq.GetMaxRetry(ctx)
				ran <- r
				return nil
			})
			select {
			case got := <-ran:
				want := run{
					ID: msg.ID, Queue: msg.Queue, Type: store.TaskType, Payload: msg.Payload, Headers: msg.Headers,
					Retried: int(msg.Retried), Limit: int(msg.Retry),
				}
				if diff := cmp.Diff(want, got, same); diff != "" {
					t.Errorf("asynq's handler (-want +got):\n%s", diff)
				}
			case <-time.After(time.Minute):
				t.Fatal("a plain asynq server did not run the job within a minute")
			}
		})
	}
}

func TestDecodeMessageRefuses(t *testing.T) {
	t.Parallel()
	good := (&store.Message{Type: "t", ID: "i", Queue: "q", Payload: []byte("p"), Headers: map[string]string{"k": "v"}}).AppendTo(nil)
	for _, tc := range []struct {
		name, want string
		in         []byte
	}{
		{"nothing", "store: decode task message: id or queue missing", nil},
		{"no queue", "store: decode task message: id or queue missing", (&store.Message{ID: "i"}).AppendTo(nil)},
		{"no id", "store: decode task message: id or queue missing", (&store.Message{Queue: "q"}).AppendTo(nil)},
		{"cut short", "store: decode task message field 15: unexpected EOF", good[:len(good)-1]},
		{"a bad tag", "store: decode task message: invalid field number", append([]byte{0}, good...)},
		{"a length beyond the end", "store: decode task message field 2: unexpected EOF", []byte{0x12, 0x7f, 'x'}},
		{"a header that is no pair", "store: decode task message field 15: truncated", append(slices.Clip(good), 0x7a, 2, 0x08, 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, err := store.DecodeMessage(tc.in)
			// protobuf puts a no-break space behind "proto:" at random.
			if err == nil || strings.NewReplacer("proto: ", "", "proto:\u00a0", "").Replace(err.Error()) != tc.want {
				t.Errorf("got %+v and error %v, want %s", m, err, tc.want)
			}
		})
	}
}

// A decoded message does not change when its input is overwritten, as buffers
// of clients are.
func TestDecodeMessageCopies(t *testing.T) {
	t.Parallel()
	in := (&store.Message{Type: "type", ID: "id", Queue: "queue", Payload: []byte("payload"), Headers: map[string]string{"k": "v"}}).AppendTo(nil)
	m, err := store.DecodeMessage(in)
	if err != nil {
		t.Fatal(err)
	}
	clear(in)
	want := &store.Message{Type: "type", ID: "id", Queue: "queue", Payload: []byte("payload"), Headers: map[string]string{"k": "v"}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("after the input was overwritten (-want +got):\n%s", diff)
	}
}

// stored decodes the message of a task hash.
func stored(t *testing.T, rdb redis.UniversalClient, queue, id string) *store.Message {
	t.Helper()
	b, err := rdb.HGet(context.Background(), store.TaskKey(queue, id), store.FieldMsg).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	m, err := store.DecodeMessage(b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// serve runs a plain asynq server on one queue until the test ends.
func serve(t *testing.T, rdb redis.UniversalClient, queue string, h asynq.HandlerFunc) {
	t.Helper()
	s := asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 1, Queues: map[string]int{queue: 1}, TaskCheckInterval: 5 * time.Millisecond, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	if err := s.Start(h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
}

// Without its payload a message is the same but for that.
func TestPayloadSpan(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 127, 128, 5000, 300_000} {
		m := store.Message{
			Type: store.TaskType, Payload: bytes.Repeat([]byte{'x'}, n), ID: "a", Queue: "tidegate:shop",
			Headers: map[string]string{"key": "alice"}, Retry: store.MaxRetry, Timeout: 60, Retention: 30,
		}
		encoded := m.AppendTo(nil)
		from, to := store.PayloadSpan(m.Payload)
		got, err := store.DecodeMessage(slices.Concat(encoded[:from], encoded[to:]))
		if err != nil {
			t.Fatalf("payload of %d bytes: %v", n, err)
		}
		m.Payload = nil
		if diff := cmp.Diff(&m, got, same); diff != "" {
			t.Errorf("payload of %d bytes (-want +got)\n%s", n, diff)
		}
	}
}
