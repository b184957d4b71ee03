package store

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// sampled is an id that gets a forecast; one id in fifty does.
const sampled = "s9"

// The start of a job with a forecast is compared with it, once; what its queue tells of that is its error.
func TestForecastErrors(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, queue := t.Context(), DefaultNamespace.Queue(redistest.Name(t, "d"), Default)
		now, err := rdb.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		asked := now.Add(-99 * time.Second)
		late := Wanted{ID: "a", At: now.Add(-50 * time.Second), From: now.Add(-time.Minute), To: now.Add(time.Minute)} // 50 of 49 + 1 s
		early := Wanted{ID: "b", At: now.Add(100 * time.Second), From: now.Add(50 * time.Second), To: now.Add(time.Hour)}
		for _, id := range []string{"a", "b", sampled} {
			msg := Message{Type: TaskType, Payload: []byte("1"), ID: id, Queue: queue}
			if _, err := Enqueue(ctx, rdb, now, []NewJobs{{queue, []NewJob{{ID: id, Message: msg.AppendTo(nil)}}}}); err != nil {
				t.Fatal(err)
			}
		}
		o, err := Outlooks(ctx, rdb, []string{queue}, nil)
		if err != nil || len(o[0].Wanted) != 1 || o[0].Wanted[0] != (Wanted{ID: sampled, Place: 2}) || o[0].Pending != 3 {
			t.Fatalf("%+v, %v", o, err)
		}
		if err := Foretell(ctx, rdb, queue, asked, []Wanted{late, early}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := Fetch(ctx, rdb, FetchArgs{Queue: queue, Lease: time.Minute, Max: 3, Worker: "w", Run: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		o, err = Outlooks(ctx, rdb, []string{queue}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if o[0].Starts != 2 || o[0].Inside != 1 || !slices.Equal(o[0].Errors, []float64{forecastError(-23), forecastError(28)}) {
			t.Errorf("errors %v, %d inside, %d wanted", o[0].Errors, o[0].Inside, len(o[0].Wanted))
		}
	})
}
