package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// postgres is a server of a test's own that listens on a socket in a directory of its own.
type postgres struct {
	t        *testing.T
	bin, dir string
}

// postgresPrograms returns the directory of initdb, postgres and psql; "" without them. Debian keeps them out of PATH.
func postgresPrograms() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	for _, path := range found {
		if path, err := filepath.EvalSymlinks(path); err == nil {
			dir := filepath.Dir(path)
			_, server := exec.LookPath(filepath.Join(dir, "postgres"))
			_, client := exec.LookPath(filepath.Join(dir, "psql"))
			if server == nil && client == nil {
				return dir
			}
		}
	}
	return ""
}

// startPostgres starts a server and stops it when the test ends. PostgreSQL refuses to run as root: there it runs as
// the user postgres, which its package makes, or as nobody.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	p := &postgres{t: t, bin: postgresPrograms()}
	if p.bin == "" {
		missing(t, "PostgreSQL is not installed: run make postgres")
	}
	var err error
	if p.dir, err = os.MkdirTemp("", "tidegate-postgres-"); err != nil { // t.TempDir is closed to other users
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(p.dir) })
	data := filepath.Join(p.dir, "data")
	initdb := p.as("initdb", "--no-sync", "--auth=trust", "--username=app", "--encoding=UTF8", "--locale=C", "--pgdata="+data)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := p.as("postgres", "-D", data, "-k", p.dir, "-c", "listen_addresses=", "-c", "fsync=off")
	log := &loggingtest.Buffer{}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Wait() }()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // ends connections and stops
		select {
		case <-done:
		case <-time.After(time.Minute):
			_ = server.Process.Signal(syscall.SIGQUIT)
			<-done
		}
		if t.Failed() {
			t.Logf("postgres:\n%s", log)
		}
	})
	redistest.Await(t, 2*time.Minute, "PostgreSQL accepts connections", func() bool {
		return p.psql("postgres", "SELECT 1").Run() == nil
	})
	return p
}

// as is a program of PostgreSQL, run by a user who is not root.
func (p *postgres) as(program string, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.Command(filepath.Join(p.bin, program), args...)
	cmd.Dir = p.dir
	dieWithUs(cmd)
	if os.Getuid() != 0 {
		return cmd
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		p.t.Fatalf("PostgreSQL needs a user who is not root: %v", err)
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		p.t.Fatal(err)
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chown(p.dir, uid, gid); err != nil {
		p.t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return cmd
}

// url is where a database is.
func (p *postgres) url(database string) string {
	return "postgres://app@/" + database + "?host=" + p.dir
}

// psql is the program that runs commands in a database; it stops at the first error.
func (p *postgres) psql(database, commands string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", p.url(database))
	cmd.Stdin = strings.NewReader(commands)
	return cmd
}

// run runs commands in a database and returns what they print.
func (p *postgres) run(database, commands string) string {
	p.t.Helper()
	var stderr bytes.Buffer
	cmd := p.psql(database, commands)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("psql: %v\n%s%s", err, commands, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// hold runs a command in a session that lasts until release is called.
func (p *postgres) hold(database, command string) (release func()) {
	p.t.Helper()
	cmd := p.psql(database, "")
	cmd.Stdin = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	released := false
	release = func() {
		if released {
			return
		}
		released = true
		err := errors.Join(in.Close(), cmd.Wait())
		if err != nil {
			p.t.Errorf("psql: %v", err)
		}
	}
	p.t.Cleanup(release)
	const held = "held\n"
	if _, err := io.WriteString(in, command+"\n\\echo held\n"); err != nil {
		p.t.Fatal(err)
	}
	got := make([]byte, len(held))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != held {
		p.t.Fatalf("psql: %q, %v", got, err)
	}
	return release
}
