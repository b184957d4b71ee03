package redisconn

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// A server that has no place for one more client says so.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	client := open(t, server.URL())
	for range 5 {
		if err := client.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "max number of clients reached") {
			t.Errorf("ping: %v", err)
		}
	}
	err := Wait(t.Context(), client, slog.New(slog.DiscardHandler), time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "max number of clients reached") || strings.Contains(err.Error(), "rediss://") {
		t.Errorf("wait: %v", err)
	}
}

// What a server writes before it closes a new connection is its error, and nothing else is.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ said, want string }{
		{"-DENIED Redis is running in protected mode\r\n", "DENIED Redis is running in protected mode"},
		{"-ERR max number of clients reached\r\n", "ERR max number of clients reached"},
		{"", "EOF"},
		{"+OK\r\n", "EOF"},
	} {
		t.Run(fmt.Sprintf("%q", tc.said), func(t *testing.T) {
			t.Parallel()
			ours, servers := net.Pipe()
			go func() {
				_, _ = io.WriteString(servers, tc.said)
				_ = servers.Close()
			}()
			conn := &lastWords{Conn: ours}
			var err error
			for buf := make([]byte, 100); err == nil; {
				_, err = conn.Read(buf)
			}
			if err.Error() != tc.want {
				t.Errorf("error %q, want %q", err, tc.want)
			}
		})
	}
}
