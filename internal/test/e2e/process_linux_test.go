package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes a worker end with the test binary, even if that is killed.
func dieWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
