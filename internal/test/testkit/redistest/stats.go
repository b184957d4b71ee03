package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// statsTimeout bounds the commands that read and reset counts.
const statsTimeout = 5 * time.Second

// CommandStats returns how often each command was called since the server's
// start or the last ResetStats, by its name in lower case ("evalsha",
// "config|get"). Commands called inside scripts count too. What this package
// itself calls is left out.
func (s *Server) CommandStats(t testing.TB) map[string]int64 {
	t.Helper()
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	info, err := s.command(statsTimeout, "INFO", "commandstats")
	if err != nil {
		t.Fatalf("redistest: command stats: %v", err)
	}
	stats, err := parseCommandStats(info)
	if err != nil {
		t.Fatalf("redistest: command stats: %v", err)
	}
	own := maps.Clone(s.own)
	own["info"]-- // a command is counted after it has answered
	for name, n := range own {
		if stats[name] -= n; stats[name] <= 0 {
			delete(stats, name)
		}
	}
	return stats
}

// ResetStats sets the counts of CommandStats to zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	if _, err := s.command(statsTimeout, "CONFIG", "RESETSTAT"); err != nil {
		t.Fatalf("redistest: reset stats: %v", err)
	}
	s.own = map[string]int64{"config|resetstat": 1}
}

// parseCommandStats reads lines like
//
//	cmdstat_config|get:calls=1,usec=20,usec_per_call=20.00,rejected_calls=0,failed_calls=0
func parseCommandStats(info string) (map[string]int64, error) {
	stats := map[string]int64{}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		name, isStat := strings.CutPrefix(name, "cmdstat_")
		if !ok || !isStat {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(rest, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parse line %q: %w", line, err)
		}
		if n > 0 {
			stats[strings.ToLower(name)] = n
		}
	}
	return stats, nil
}

// command runs one command on a connection of its own; the caller holds statsMu.
// It speaks the protocol itself, because a client library adds commands (HELLO,
// CLIENT) to the counts and reports refused connections to standard error.
func (s *Server) command(timeout time.Duration, args ...string) (string, error) {
	conn, err := net.DialTimeout("tcp4", s.Addr(), timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	if s.password != "" {
		if _, err := exchange(conn, r, "AUTH", s.password); err != nil {
			return "", err
		}
		s.own["auth"]++
	}
	reply, err := exchange(conn, r, args...)
	if err != nil {
		return "", err
	}
	s.own[strings.ToLower(args[0])]++
	return reply, nil
}

// exchange sends a command and reads its reply, which must be a string or a number.
func exchange(w io.Writer, r *bufio.Reader, args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if line == "" {
		return "", errors.New("empty reply")
	}
	switch rest := line[1:]; line[0] {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", fmt.Errorf("bad length %q in the reply", rest)
		}
		body := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, body); err != nil {
			return "", err
		}
		return string(body[:n]), nil
	default:
		return "", fmt.Errorf("unexpected reply %q", line)
	}
}
