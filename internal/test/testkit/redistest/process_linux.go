package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"
)

// dieWithParent makes the kernel kill the process when the test binary dies, by
// whatever means.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitFrozen returns when the kernel has stopped the process: SIGSTOP is sent
// without waiting for that.
func (p *process) awaitFrozen() error {
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if err != nil {
			return fmt.Errorf("read the state of process %d: %w", p.pid, err)
		}
		// "pid (name) state …", where the name may hold anything, ')' included.
		if i := bytes.LastIndex(stat, []byte(") ")); i >= 0 && stat[i+2] == 'T' {
			return nil
		}
		select {
		case <-poll.C:
		case <-p.done:
			return nil
		case <-deadline.C:
			return fmt.Errorf("process %d did not stop within %s", p.pid, stopTimeout)
		}
	}
}
