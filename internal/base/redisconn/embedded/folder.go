package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/text"
)

// Files of a folder.
const (
	urlFile    = "redis-url"
	socketFile = "redis.sock"
	logFile    = "redis.log"
)

const (
	// owner is the name of the connection by which a process holds a redis-server of its own.
	owner = "tidegate-dev"
	// settings are a redis-server's, in its folder: only who may enter the folder reaches its socket.
	settings = "port 0\nunixsocket " + socketFile + "\nappendonly yes\nsave \"\"\nloglevel warning\nlogfile " + logFile + "\n"
	// pollEvery is how often a starting redis-server is asked, and stopTimeout bounds the end of one.
	pollEvery, stopTimeout = 20 * time.Millisecond, 10 * time.Second
	// longestSocket is what every system takes as the path of a socket, in bytes.
	longestSocket = 100
)

// StartIn starts the Redis of "tidegate dev" with the folder dir, which is created if it does not exist. Where PATH has
// redis-server, it runs that, which keeps its data in dir as an append-only file, and Kept is true; else [Start]. The
// file redis-url in dir has the server's URL.
//
// A redis-server that a killed process has left behind is used again. The error says so if another process uses dir.
func StartIn(ctx context.Context, dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	s, err := startServer(ctx, dir)
	if errors.Is(err, exec.ErrNotFound) {
		s, err = Start()
	}
	if err != nil {
		return nil, err
	}
	for name, content := range map[string]string{".gitignore": "*\n", urlFile: s.URL() + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("embedded: %w", err), s.Close())
		}
	}
	return s, nil
}

// URLIn returns the URL of the last server of a folder, "" if there was none.
func URLIn(dir string) string {
	content, _, err := text.ReadFile(filepath.Join(dir, urlFile), 4096)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(content))
}

// startServer starts redis-server, or takes over one that runs in dir. The error is exec.ErrNotFound without one.
func startServer(ctx context.Context, dir string) (*Server, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, exec.ErrNotFound
	}
	socket, err := filepath.Abs(filepath.Join(dir, socketFile))
	if err == nil && len(socket) > longestSocket {
		err = fmt.Errorf("the path %s is too long for a socket: name another folder with --data", socket)
	}
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	client := redis.NewClient(&redis.Options{
		Network: "unix", Addr: socket, ClientName: owner, ConnMaxIdleTime: -1, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ReadTimeout: stopTimeout, ContextTimeoutEnabled: true,
	})
	s := &Server{url: "redis-socket://" + socket, Kept: true}
	ended := make(chan error, 1)
	s.stop = func() error {
		defer func() { _ = client.Close() }()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := client.ShutdownNoSave(stopping).Err(); err != nil {
			return fmt.Errorf("embedded: stop redis-server: %w", err)
		}
		select {
		case err := <-ended:
			return err
		case <-stopping.Done():
			return errors.New("embedded: redis-server does not end")
		}
	}
	if listens(ctx, socket) {
		clients, err := client.ClientList(ctx).Result()
		_, answers := errors.AsType[redis.Error](err) // such as LOADING
		switch {
		case strings.Count(clients, " name="+owner+" ") > 1: // besides this one
			_ = client.Close()
			return nil, fmt.Errorf("embedded: another process uses %s: stop it, or start in another folder", dir)
		case err == nil || answers:
			ended <- nil // not a child of this process
			return s, nil
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "-") // Close ends it
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(settings)
	apart(cmd)
	if err := cmd.Start(); err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("embedded: start redis-server: %w", err)
	}
	go func() { ended <- cmd.Wait() }()
	for !listens(ctx, socket) || client.Ping(ctx).Err() != nil {
		select {
		case err = <-ended:
			_ = client.Close()
			return nil, fmt.Errorf("embedded: redis-server has ended (%w); %s says why", err, filepath.Join(dir, logFile))
		case <-ctx.Done():
			ended <- nil
			return nil, errors.Join(context.Cause(ctx), cmd.Process.Kill(), client.Close())
		case <-time.After(pollEvery):
		}
	}
	return s, nil
}

// listens reports whether a server listens at a socket. Until then go-redis would log that it cannot connect.
func listens(ctx context.Context, socket string) bool {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
