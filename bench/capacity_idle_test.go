package bench

import "testing"

// measureMemory fills Redis with jobs that wait.
func measureMemory(t testing.TB, p capacityPlan, f *capacityFigures) {
	for _, c := range []struct {
		size int
		into *float64
	}{{100, &f.waitingSmall}, {1000, &f.waitingLarge}} {
		s := startRedis(t, "everysec")
		s.fill(t, 10, c.size) // brings what comes once, such as scripts
		before := s.info(t, "memory", "used_memory")
		s.fill(t, p.waiting, c.size)
		*c.into = (s.info(t, "memory", "used_memory") - before) / float64(p.waiting)
		s.Stop()
	}
}

// measureIdleWorker measures a worker without jobs.
func measureIdleWorker(t testing.TB, p capacityPlan, f *capacityFigures) {
	s := startRedis(t, "everysec")
	url, _ := startSink(t)
	idle, _ := startWorker(t, s.URL(), url, 1)
	pause(t.Context(), p.quiet) // what a worker takes at its start is not counted
	f.workerIdle = memory(idle.cmd.Process.Pid, "VmRSS")
	f.connectionsIdle = s.connections(t)
	idle.stop(t)
}
