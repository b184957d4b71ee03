//go:build soak

package publisher_test

import (
	"bufio"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// After an incident 5,000 ready jobs leave as fast beside a million delayed ones as
// beside none, and no command holds Redis up for 10 ms. It measures time, so it wants a
// quiet machine; the CPU time of Redis, which it logs, depends less on that.
func TestSoakIncidentBesideAMillionDelayedJobs(t *testing.T) {
	const delayed, ready, concurrency, pairs = 1_000_000, 5000, 10, 7
	type side struct {
		server *redistest.Server
		b      *fixture
	}
	start := func() side {
		s := redistest.Start(t)
		b := fixtureOn(t, s)
		if err := b.rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err(); err != nil {
			t.Fatal(err)
		}
		return side{s, b}
	}
	cpu := func(s side) (seconds float64) {
		t.Helper()
		info := s.b.rdb.Info(t.Context(), "cpu").Val()
		for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				seconds += n
			}
		}
		return seconds
	}
	measure := func(s side) (took time.Duration, used float64) {
		t.Helper()
		if err := s.b.rdb.Do(t.Context(), "SLOWLOG", "RESET").Err(); err != nil {
			t.Fatal(err)
		}
		before := cpu(s)
		took, _ = s.b.incident(s.server, ready, concurrency)
		used = cpu(s) - before
		slow, err := s.b.rdb.SlowLogGet(t.Context(), 10).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range slow {
			t.Errorf("%s took %s", one.Args[0], one.Duration)
		}
		return took, used
	}
	none, million := start(), start()
	for range delayed / 20_000 {
		million.b.enqueueMany(20_000, jobs.Delay(10*time.Hour))
	}
	var ratios, cpuRatios []float64
	for range pairs {
		without, cpuWithout := measure(none)
		with, cpuWith := measure(million)
		t.Logf("beside none %s, CPU %.3f s; beside %d delayed jobs %s, CPU %.3f s", without, cpuWithout, delayed, with, cpuWith)
		ratios = append(ratios, float64(with)/float64(without))
		cpuRatios = append(cpuRatios, cpuWith/cpuWithout)
	}
	slices.Sort(ratios)
	slices.Sort(cpuRatios)
	t.Logf("medians of %d pairs: time %.2f, CPU %.2f", pairs, ratios[pairs/2], cpuRatios[pairs/2])
	if ratios[pairs/2] > 1.1 {
		t.Errorf("an incident beside %d delayed jobs takes %.2f times as long as beside none, want at most 1.1", delayed, ratios[pairs/2])
	}
}
