//go:build unix

package config

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What is not a regular file is an error that names the variable, and never a hang.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "special") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	base := []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items"}
	for path, want := range map[string]string{
		pipe: "is a pipe", socket: "is a socket", dir: "is a directory", "/dev/zero": "is a device", "/dev/null": "is a device",
	} {
		for _, name := range []string{
			"REDIS_URL_FILE", "DESTINATION_0_AUTH_TOKEN_FILE", "DESTINATION_0_AUTH_TOKENS_FILE", "DESTINATION_0_ANSWERS_FILE",
			"DESTINATION_0_SIGN_SECRET_FILE", "DESTINATION_0_HEADERS_FILE", "SLACK_BOT_TOKEN_FILE",
		} {
			_, _, err := Load(append(base, name+"="+path))
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s=%s: %v, want that it %s", name, path, err, want)
			}
		}
	}
}
