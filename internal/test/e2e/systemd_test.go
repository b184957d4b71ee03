package e2e

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// notifications are what a service manager is told, as sd_notify(3) has it.
type notifications struct {
	t    *testing.T
	path string
	said chan string
}

func listenAsSystemd(t *testing.T) *notifications {
	t.Helper()
	n := &notifications{t: t, path: filepath.Join(t.TempDir(), "notify"), said: make(chan string, 100)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			size, err := conn.Read(buffer)
			if err != nil {
				return
			}
			n.said <- string(buffer[:size])
		}
	}()
	return n
}

// expect waits for the next notification.
func (n *notifications) expect(want string, within time.Duration) {
	n.t.Helper()
	select {
	case got := <-n.said:
		if got != want {
			n.t.Errorf("systemd was told %q, want %q", got, want)
		}
	case <-time.After(within):
		n.t.Fatalf("systemd was not told %q within %s", want, within)
	}
}

// silent checks that nothing was said that nobody has heard yet.
func (n *notifications) silent(when string) {
	n.t.Helper()
	select {
	case got := <-n.said:
		n.t.Errorf("%s systemd was told %q", when, got)
	default:
	}
}

// A service of Type=notify is up when it publishes, for which Redis has to be there, and stops from
// SIGTERM on, not when its last call has ended.
func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	systemd := listenAsSystemd(t)
	f := newFleet(t, server, fakeapi.Options{Latency: 1500 * time.Millisecond})
	f.env["NOTIFY_SOCKET"] = systemd.path
	server.Stop()
	w := f.begin()
	redistest.Await(t, 2*time.Minute, "it waits for Redis", func() bool { return strings.Contains(w.log.String(), "Redis not reachable") })
	if status, report := w.readyz(); status != http.StatusServiceUnavailable || report.Redis != "not connected yet" {
		t.Errorf("/readyz before Redis: %d %+v", status, report)
	}
	systemd.silent("before Redis is there")
	server.Restart()
	systemd.expect("READY=1", 20*time.Second)
	ids := f.enqueue(1)
	f.waitAccepted(1, 10*time.Second)
	systemd.silent("while it works")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	systemd.expect("STOPPING=1", 10*time.Second)
	if f.api.Stats().InFlight != 1 {
		t.Error("it was notified only when the call had ended")
	}
	if err := <-w.done; err != nil {
		t.Errorf("exit: %v", err)
	}
	w.done <- nil
	systemd.silent("at the end")
	f.exactlyOnce(ids)
}
