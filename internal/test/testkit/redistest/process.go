package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is one run of redis-server; a Server has had several if it was restarted.
type process struct {
	cmd  *exec.Cmd
	pid  int
	out  tail
	done chan struct{} // closed when the process is gone and reaped
	err  error         // how it ended; set before done is closed
}

// startProcess starts the program and a goroutine that waits for its end.
func startProcess(path string, args []string, env ...string) (*process, error) {
	p := &process{done: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	go func() {
		// The system ties the process to the thread that started it, not to the
		// whole test binary, so that thread is kept until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil {
			p.pid = p.cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// ended returns how the process ended; call it once done is closed.
func (p *process) ended() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends a signal; a process that is gone is no error.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.pid, err)
	}
	return nil
}

// freeze stops the process from running and returns when it has stopped.
func (p *process) freeze() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.awaitFrozen()
}

// stop ends the process as SHUTDOWN does, a frozen one too.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	if err := errors.Join(p.signal(syscall.SIGTERM), p.signal(syscall.SIGCONT)); err != nil {
		return err
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return errors.Join(fmt.Errorf("process %d did not end within %s", p.pid, stopTimeout), p.kill())
	}
}

// kill ends the process at once.
func (p *process) kill() error {
	if err := p.signal(os.Kill); err != nil {
		return err
	}
	<-p.done
	return nil
}

// tail keeps the end of what a process prints.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10

func (o *tail) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	if extra := len(o.buf) - tailSize; extra > 0 {
		o.buf = append(o.buf[:0], o.buf[extra:]...)
	}
	return len(b), nil
}

func (o *tail) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(bytes.TrimSpace(o.buf))
}
