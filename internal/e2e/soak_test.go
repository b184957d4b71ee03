//go:build soak

package e2e

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
	"github.com/tidegate/tidegate/internal/redistest"
)

// Workers are killed all the time, leases are found lost at asynq's own pace,
// and the API has a limit: nothing is lost, and only what was in flight at a
// kill is sent twice.
func TestSoakKills(t *testing.T) {
	const n, workers, kills = 20000, 3, 30
	f := newFleet(t, redistest.Start(t, redistest.WithAOF()), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1500, Window: 10 * time.Second}, Latency: 20 * time.Millisecond, Light: true,
	})
	f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = "2000"
	ids := f.enqueue(n)
	var fleet []*worker
	for range workers {
		fleet = append(fleet, f.start())
	}
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for range kills {
		<-tick.C
		i := rand.IntN(workers)
		fleet[i].stop(syscall.SIGKILL)
		fleet[i] = f.start()
	}
	f.waitCompleted(ids, 15*time.Minute)
	accepted := f.api.Accepted()
	twice := 0
	for _, id := range ids {
		switch times := accepted[id]; {
		case times == 0:
			t.Errorf("job %s was never accepted", id)
		case times > 1:
			twice++
		}
		delete(accepted, id)
	}
	if len(accepted) > 0 {
		t.Errorf("accepted but never enqueued: %v", accepted)
	}
	if most := kills * 10; twice > most {
		t.Errorf("%d jobs were accepted more than once; at most %d were in flight at the %d kills", twice, most, kills)
	}
	stats := f.api.Stats()
	t.Logf("%d jobs, %d kills: %d calls, %d refused, %d jobs accepted more than once", n, kills, stats.Calls, stats.Limited, twice)
}

// Redis is killed again and again; with an append-only file it loses nothing
// that it had acknowledged, and neither do the workers.
func TestSoakRedisKills(t *testing.T) {
	const n, workers, kills = 3000, 3, 20
	server := redistest.Start(t, redistest.WithAOF())
	f := newFleet(t, server, fakeapi.Options{Latency: 100 * time.Millisecond, Light: true})
	ids := f.enqueue(n)
	for range workers {
		f.start()
	}
	tick := time.NewTicker(3 * time.Second)
	defer tick.Stop()
	for range kills {
		<-tick.C
		server.Kill()
		<-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond) // the outage itself
		server.Restart()
	}
	f.waitCompleted(ids, 10*time.Minute)
	accepted := f.api.Accepted()
	twice := 0
	for _, id := range ids {
		if accepted[id] == 0 {
			t.Errorf("job %s was never accepted", id)
		}
		if accepted[id] > 1 {
			twice++
		}
	}
	t.Logf("%d jobs, %d kills of Redis: %d accepted more than once", n, kills, twice)
}
