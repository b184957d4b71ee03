package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// CallTimes are how long the calls of a destination took that have ended within the last hour. They are counted in
// buckets: times are right within a tenth.
type CallTimes struct {
	Calls int     `json:"calls" doc:"How many have ended within the last hour." example:"1200"`
	P50   float64 `json:"p50_secs" doc:"How many seconds half of them took at most, within a tenth." example:"0.21"`
	P90   float64 `json:"p90_secs" doc:"How many seconds nine of ten took at most." example:"0.42"`
	Max   float64 `json:"max_secs" doc:"How many seconds the longest took." example:"1.9"`
}

const (
	// CallsKept is how long the counts of an hour are kept.
	CallsKept = 2 * time.Hour
	// callsPart is the time whose calls are counted together.
	callsPart = 10 * time.Minute
	// bucketsEach is how many buckets there are until a call takes twice as long.
	bucketsEach = 4
)

// CallCounter returns where calls of a destination are counted that took so long and ended at an instant: a hash
// and its field, "<part of the hour>:<bucket>".
func (n Namespace) CallCounter(destination string, at time.Time, took time.Duration) (key, field string) {
	bucket := max(0, math.Ceil(bucketsEach*math.Log2(took.Seconds()*1000))) // 0: up to 1 ms
	part := at.Sub(at.Truncate(time.Hour)) / callsPart
	return n.callsKey(destination, at), fmt.Sprintf("%d:%.0f", part, bucket)
}

// CallTimes reads how long calls of destinations took, in their order, at an instant of the workers' clocks; nil
// for one without calls. Errors: Redis's.
func (n Namespace) CallTimes(ctx context.Context, rdb redis.UniversalClient, destinations []string, at time.Time) ([]*CallTimes, error) {
	hours := [2]time.Time{at.Add(-time.Hour).Truncate(time.Hour), at.Truncate(time.Hour)}
	hashes := make([][2]*redis.MapStringStringCmd, len(destinations))
	if _, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for i, d := range destinations {
			hashes[i] = [2]*redis.MapStringStringCmd{pipe.HGetAll(ctx, n.callsKey(d, hours[0])), pipe.HGetAll(ctx, n.callsKey(d, hours[1]))}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read how long calls took: %w", err)
	}
	out := make([]*CallTimes, len(destinations))
	for i := range out {
		buckets := map[int]int{}
		for k, hour := range hours {
			for field, value := range hashes[i][k].Val() {
				var part, bucket int
				_, wrong := fmt.Sscanf(field, "%d:%d", &part, &bucket)
				count, err := strconv.Atoi(value)
				if wrong == nil && err == nil && hour.Add(time.Duration(part+1)*callsPart).After(at.Add(-time.Hour)) {
					buckets[bucket] += count
				}
			}
		}
		out[i] = callTimes(buckets)
	}
	return out, nil
}

// callTimes returns the times of calls from counts by bucket, nil without any. Each time is the middle of its bucket.
func callTimes(buckets map[int]int) *CallTimes {
	t := &CallTimes{}
	for _, count := range buckets {
		t.Calls += count
	}
	passed := 0
	for _, b := range slices.Sorted(maps.Keys(buckets)) {
		t.Max = math.Round(math.Exp2((float64(b)-0.5)/bucketsEach)) / 1000
		if passed*2 < t.Calls {
			t.P50 = t.Max
		}
		if passed*10 < t.Calls*9 {
			t.P90 = t.Max
		}
		passed += buckets[b]
	}
	if t.Calls == 0 {
		return nil
	}
	return t
}
