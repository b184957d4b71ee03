//go:build soak

package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/internal/callbacks"
)

// measurement samples the memory of Redis and of each process of a long run.
type measurement struct {
	r       *longRun
	started time.Time
	cancel  context.CancelFunc
	done    sync.WaitGroup

	samples []memorySample
}

// memorySample holds KiB by what was measured.
type memorySample struct {
	at  time.Duration
	kib map[string]int
}

func (r *longRun) measure() *measurement {
	ctx, cancel := context.WithCancel(r.t.Context())
	m := &measurement{r: r, started: time.Now(), cancel: cancel}
	m.done.Go(func() { r.every(ctx, min(10*time.Second, *longRunFor/60), m.sample) })
	return m
}

func (m *measurement) stop() {
	m.cancel()
	m.done.Wait()
}

var usedMemory = regexp.MustCompile(`(?m)^used_memory:(\d+)`)

// sample leaves out what is down at the moment.
func (m *measurement) sample(ctx context.Context) {
	pids := map[string]int{}
	m.r.mu.Lock()
	for name, w := range m.r.processes {
		pids[name] = w.pid()
	}
	m.r.mu.Unlock()
	s := memorySample{time.Since(m.started), map[string]int{}}
	for name, pid := range pids {
		if rss := resident(pid); rss > 0 {
			s.kib[name] = rss
		}
	}
	if info, err := m.r.rdb.Info(ctx, "memory").Result(); err == nil {
		if found := usedMemory.FindStringSubmatch(info); found != nil {
			bytes, _ := strconv.ParseInt(found[1], 10, 64) // digits
			s.kib["used_memory"] = int((bytes - m.deliveredCallbacks(ctx)) >> 10)
		}
	}
	m.samples = append(m.samples, s)
}

// deliveredCallbacks estimates the bytes of the records of delivered callbacks, which are
// kept for an hour whatever JOB_RETENTION says: a shorter run sees them only grow.
func (m *measurement) deliveredCallbacks(ctx context.Context) int64 {
	queue := store.DefaultNamespace.Queue(callbacks.Destination, store.Default)
	// Any of them: those that Redis has read from its file at a start take less.
	some, err := m.r.rdb.ZRandMember(ctx, store.CompletedKey(queue), 200).Result()
	if err != nil || len(some) == 0 {
		return 0
	}
	var bytes int64
	for _, id := range some {
		bytes += m.r.rdb.MemoryUsage(ctx, store.TaskKey(queue, id)).Val()
	}
	return bytes / int64(len(some)) * m.r.rdb.ZCard(ctx, store.CompletedKey(queue)).Val()
}

// resident is the memory of a process in KiB, 0 if it is gone.
func resident(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kib := 0
	_, _ = fmt.Sscan(rest, &kib) // a process that has ended has none
	return kib
}

// verdict fails if memory has grown since the warm-up.
func (m *measurement) verdict() {
	t := m.r.t
	t.Helper()
	median := func(name string, from, to float64) int {
		var out []int
		for _, s := range m.samples {
			if at := float64(s.at) / float64(*longRunFor); s.kib[name] > 0 && at >= from && at < to {
				out = append(out, s.kib[name])
			}
		}
		if len(out) == 0 {
			return 0
		}
		slices.Sort(out)
		return out[len(out)/2]
	}
	const allowance = 4 << 10 // KiB, of noise
	for _, name := range []string{"used_memory", "worker b", "api b"} {
		early, late := median(name, 0.25, 0.5), median(name, 0.75, 1)
		t.Logf("memory of %s: median of the second quarter %d KiB, of the last %d KiB", name, early, late)
		// A shorter run does not say whether it is flat.
		if *longRunFor >= 20*time.Minute && late > early+early/10+allowance {
			t.Errorf("memory of %s grows", name)
		}
	}
}
