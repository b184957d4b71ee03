//go:build soak

package publisher_test

import (
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// After an incident 5,000 ready jobs leave as fast beside a million delayed ones as
// beside none, and no command holds Redis up for 10 ms. It measures time, so it wants a
// quiet machine.
func TestSoakIncidentBesideAMillionDelayedJobs(t *testing.T) {
	const delayed, ready, concurrency, rounds = 1_000_000, 5000, 10, 5
	server := redistest.Start(t)
	b := benchOn(t, server)
	if err := b.rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err(); err != nil {
		t.Fatal(err)
	}
	measure := func() time.Duration {
		t.Helper()
		var all []time.Duration
		for range rounds {
			if err := b.rdb.Do(t.Context(), "SLOWLOG", "RESET").Err(); err != nil {
				t.Fatal(err)
			}
			took, _ := b.incident(server, ready, concurrency)
			all = append(all, took)
			slow, err := b.rdb.SlowLogGet(t.Context(), 10).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range slow {
				t.Errorf("%s took %s", s.Args[0], s.Duration)
			}
		}
		slices.Sort(all)
		t.Logf("rounds: %v", all)
		return all[rounds/2]
	}
	without := measure()
	for range delayed / 20_000 {
		b.enqueueMany(20_000, jobs.Delay(10*time.Hour))
	}
	with := measure()
	t.Logf("median of %d: %s beside none, %s beside %d delayed jobs", rounds, without, with, delayed)
	if with > without*11/10 {
		t.Errorf("%s beside %d delayed jobs, %s beside none; want at most 10 %% more", with, delayed, without)
	}
}
