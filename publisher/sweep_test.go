package publisher

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/doctor"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A full Redis is swept all the same: that is how it gets room again.
func TestSweepOfAFullRedis(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rdb := redistest.Start(t).Client(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := jobs.NewClient(rdb, jobs.WithDestinations("api"))
	must(err)
	stranded, err := client.Enqueue(ctx, jobs.New("api", nil))
	must(err)
	queue := store.DefaultNamespace.Queue("api", store.Default)
	must(rdb.LRem(ctx, store.PendingKey(queue), 1, stranded.ID).Err())
	must(rdb.HSet(ctx, store.TaskKey(queue, stranded.ID), store.FieldState, store.StateActive).Err())
	old := time.Now().Add(-25 * time.Hour).UnixMilli()
	_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, store.EventsWantedKey(queue), 1, time.Hour)
		for i := range 1000 {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: store.EventsKey(queue), ID: strconv.FormatInt(old, 10) + "-" + strconv.Itoa(i), Values: []string{"id", "x"}})
		}
		return nil
	})
	must(err)
	shop := store.DefaultNamespace.Queue("shop", store.Default)
	_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.SAdd(ctx, store.QueuesKey, shop)
		pipe.Set(ctx, store.EventsRelayedKey(shop), "1-0", time.Hour)
		for i := range 1000 {
			id := strconv.FormatInt(old-50*time.Hour.Milliseconds(), 10) + "-" + strconv.Itoa(i)
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: store.EventsKey(shop), ID: id, Values: []string{"id", "x"}})
		}
		return nil
	})
	must(err)
	dead, err := json.Marshal(store.Worker{SeenAt: time.Now().Add(-30 * 24 * time.Hour).UnixMilli()})
	must(err)
	must(rdb.HSet(ctx, store.DefaultNamespace.WorkersKey(), "dead", dead).Err())
	must(rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	if err := rdb.Set(ctx, "probe", "x", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}

	dropped := map[string]int{}
	worker := func(name string) *Publisher {
		p, err := New(rdb, Options{
			Worker: name, Logger: slog.New(slog.DiscardHandler),
			Observers: []Observer{{OnCallbacksDropped: func(destination string, n int) { dropped[destination] += n }}},
		})
		must(err)
		return p
	}
	first, second := worker("first"), worker("second")
	sweeper := doctor.NewSweeper(rdb, doctor.Options{})
	for range 3 { // its turn stays with it
		first.sweepPortion(ctx, sweeper)
	}
	if n := rdb.XLen(ctx, store.EventsKey(queue)).Val(); n > 100 {
		t.Errorf("%d entries of the stream are left, want at most 100", n)
	}
	// Callbacks of those of shop had still to be made.
	if left := rdb.XLen(ctx, store.EventsKey(shop)).Val(); left > 100 || len(dropped) != 1 || dropped["shop"] != int(1000-left) {
		t.Errorf("dropped without a callback: %v, and %d of 1000 are left", dropped, left)
	}
	if n := rdb.HLen(ctx, store.DefaultNamespace.WorkersKey()).Val(); n != 0 {
		t.Errorf("%d dead workers are remembered", n)
	}
	if job, err := client.Get(ctx, stranded.ID); err != nil || job.Status != jobs.Pending {
		t.Errorf("the stranded job: %+v, %v", job, err)
	}

	// One worker at a time.
	must(rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	must(rdb.HSet(ctx, store.DefaultNamespace.WorkersKey(), "dead", dead).Err())
	second.sweepPortion(ctx, sweeper)
	if n := rdb.HLen(ctx, store.DefaultNamespace.WorkersKey()).Val(); n != 1 {
		t.Error("the second worker swept during the first one's turn")
	}
}
