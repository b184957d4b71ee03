package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

// CallTimes are how long the calls of a destination took that ended within the last hour, within a tenth:
// they are counted in buckets. They are zero without any.
type CallTimes struct {
	Calls         int
	P50, P90, Max time.Duration
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
	bucket := 0 // up to 1 ms
	if took > time.Millisecond {
		bucket = int(math.Ceil(bucketsEach * math.Log2(float64(took)/float64(time.Millisecond))))
	}
	part := at.Sub(at.Truncate(time.Hour)) / callsPart
	return n.callsKey(destination, at), strconv.Itoa(int(part)) + ":" + strconv.Itoa(bucket)
}

// CallTimes reads how long calls of destinations took, in their order, at an instant of the workers' clocks.
// Errors: Redis's.
func (n Namespace) CallTimes(ctx context.Context, rdb redis.UniversalClient, destinations []string, at time.Time) ([]CallTimes, error) {
	if len(destinations) == 0 {
		return nil, nil
	}
	hours := [2]time.Time{at.Add(-time.Hour).Truncate(time.Hour), at.Truncate(time.Hour)}
	hashes := make([][2]*redis.MapStringStringCmd, len(destinations))
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for i, d := range destinations {
			for k, hour := range hours {
				hashes[i][k] = pipe.HGetAll(ctx, n.callsKey(d, hour))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read how long calls took: %w", err)
	}
	out := make([]CallTimes, len(destinations))
	for i := range out {
		buckets := map[int]int{}
		for k, hour := range hours {
			for field, value := range hashes[i][k].Val() {
				part, bucket, _ := strings.Cut(field, ":")
				p, err := strconv.Atoi(part)
				b, err2 := strconv.Atoi(bucket)
				count, err3 := strconv.Atoi(value)
				if err == nil && err2 == nil && err3 == nil && hour.Add(time.Duration(p+1)*callsPart).After(at.Add(-time.Hour)) {
					buckets[b] += count
				}
			}
		}
		out[i] = callTimes(buckets)
	}
	return out, nil
}

// callTimes are those of counts by bucket: each time is the middle of its bucket.
func callTimes(buckets map[int]int) (t CallTimes) {
	for _, count := range buckets {
		t.Calls += count
	}
	passed := 0
	for _, b := range slices.Sorted(maps.Keys(buckets)) {
		t.Max = time.Duration(math.Exp2((float64(b)-0.5)/bucketsEach) * float64(time.Millisecond)).Round(time.Millisecond)
		before := passed
		passed += buckets[b]
		for _, q := range []struct {
			percent int
			into    *time.Duration
		}{{50, &t.P50}, {90, &t.P90}} {
			if need := (t.Calls*q.percent + 99) / 100; before < need && passed >= need {
				*q.into = t.Max
			}
		}
	}
	return t
}
