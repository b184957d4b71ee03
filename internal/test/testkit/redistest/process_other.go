//go:build !linux

package redistest

import "syscall"

// dieWithParent is nil where the system cannot tie a process to its parent: a
// server outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

// awaitFrozen has nothing to ask here; SIGSTOP takes effect within microseconds.
func (p *process) awaitFrozen() error { return nil }
