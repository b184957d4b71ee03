//go:build soak

package e2e

import (
	"context"
	"fmt"
	"maps"
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
	cpu     map[int]time.Duration // of each process so far
}

// memorySample holds KiB by what was measured.
type memorySample struct {
	at  time.Duration
	kib map[string]int
}

func (r *longRun) measure() *measurement {
	ctx, cancel := context.WithCancel(r.t.Context())
	m := &measurement{r: r, started: time.Now(), cancel: cancel, cpu: map[int]time.Duration{}}
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
	pids := map[string]int{"redis": m.r.server.PID()}
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
		if used := cpuTime(pid); used > 0 {
			m.cpu[pid] = used
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

// cpuTime is what a process has had of processors, 0 if it is gone.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if err != nil || !ok || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])   // digits
	system, _ := strconv.Atoi(fields[12]) // digits
	return time.Duration(user+system) * 10 * time.Millisecond
}

// verdict prints the curves, a line for each twelfth of the time, and fails if memory
// has grown since the warm-up.
func (m *measurement) verdict() {
	t := m.r.t
	t.Helper()
	took := time.Since(m.started)
	columns := []string{"used_memory", "redis", "worker a", "worker b", "api a", "api b"}
	between := func(name string, from, to float64) []int {
		var out []int
		for _, s := range m.samples {
			if at := float64(s.at) / float64(*longRunFor); s.kib[name] > 0 && at >= from && at < to {
				out = append(out, s.kib[name])
			}
		}
		slices.Sort(out)
		return out
	}
	t.Logf("MiB, median, used_memory without records of delivered callbacks: %s", strings.Join(columns, ", "))
	const lines = 12
	for i := range lines {
		row := fmt.Sprintf("%8s", (*longRunFor * time.Duration(i) / lines).Round(time.Second))
		for _, name := range columns {
			row += fmt.Sprintf(" %8s", mebibytes(between(name, float64(i)/lines, float64(i+1)/lines)))
		}
		t.Log(row)
	}
	t.Logf("%8s %8s", "drained", mebibytes(between("used_memory", 1, 1e9)))
	const allowance = 4 << 10 // KiB, of noise
	// What the process of Redis takes has the callbacks in it.
	for _, name := range []string{"used_memory", "worker b", "api b"} {
		early, late := between(name, 0.25, 0.5), between(name, 0.75, 1)
		if len(early) == 0 || len(late) == 0 || *longRunFor < 20*time.Minute {
			t.Logf("%s: too short a run to say whether its memory is flat", name)
			continue
		}
		if a, b := early[len(early)/2], late[len(late)/2]; b > a+a/10+allowance {
			t.Errorf("memory of %s grows: median of the second quarter %d KiB, of the last %d KiB", name, a, b)
		}
	}
	var cpu time.Duration
	for _, d := range m.cpu {
		cpu += d
	}
	t.Logf("processors: %.2f of one, Redis and all processes", cpu.Seconds()/took.Seconds())
	m.census()
}

func mebibytes(kib []int) string {
	if len(kib) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(kib[len(kib)/2])/1024)
}

var names = regexp.MustCompile(`\bd\d\d\b|\bk\d+\b|\bb\d+\b|\blong-\d+\b|[0-9a-f-]{32,}|\d+`)

// census says what Redis holds at the end, by the form of the key's name.
func (m *measurement) census() {
	ctx := m.r.t.Context()
	count, bytes := map[string]int{}, map[string]int64{}
	keys := m.r.rdb.Scan(ctx, 0, "", 1000).Iterator()
	for keys.Next(ctx) {
		form := names.ReplaceAllString(keys.Val(), "*")
		count[form]++
		bytes[form] += m.r.rdb.MemoryUsage(ctx, keys.Val()).Val()
	}
	forms := slices.SortedFunc(maps.Keys(count), func(a, b string) int { return int(bytes[b] - bytes[a]) })
	for _, form := range forms[:min(12, len(forms))] {
		m.r.t.Logf("left in Redis: %8d KiB in %5d keys %s", bytes[form]>>10, count[form], form)
	}
}
