package redistest

import (
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// CPU is how long the server has computed, without the time for which the machine ran
// something else: 0 while it is down.
func (s *Server) CPU(t testing.TB) time.Duration {
	t.Helper()
	const scheduled = 2 // CPUCLOCK_SCHED of linux/posix-timers_types.h
	pid := s.PID()
	if pid == 0 {
		return 0
	}
	var now syscall.Timespec
	clock := uintptr(^pid<<3 | scheduled)
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now)), 0); err != 0 { //nolint:gosec // the system call fills it
		t.Fatalf("read the CPU time of redis-server: %v", err)
	}
	return time.Duration(now.Nano())
}
