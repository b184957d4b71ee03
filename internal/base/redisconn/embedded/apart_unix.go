//go:build unix

package embedded

import (
	"os/exec"
	"syscall"
)

// apart lets a Ctrl-C that ends this process leave its redis-server running until the last job has ended.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
