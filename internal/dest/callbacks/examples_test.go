package callbacks

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/dest/webhook"
)

// The receivers in docs/examples/callbacks take what we send and nothing else.
func TestExamplesOfReceivers(t *testing.T) {
	t.Parallel()
	const dir = "../../../docs/examples/callbacks"
	for _, tc := range []struct {
		name    string
		command func(t *testing.T) []string
	}{
		{"go", func(t *testing.T) []string {
			t.Helper()
			program := filepath.Join(t.TempDir(), "receive")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./"+dir+"/go")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return []string{program}
		}},
		{"python", installed("python3", dir+"/python/receive.py")},
		{"javascript", installed("node", dir+"/javascript/receive.mjs")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			address, lines := run(t, tc.command(t), "WEBHOOK_SECRET="+secretTwo, "PORT=0")
			url := "http://" + address + "/hook"
			job := aJob("shop")
			for _, secrets := range [][]string{{secretTwo}, {secretOne, secretTwo}} {
				c := withoutRedis(t, Receiver{Destination: "shop", URL: url, Secrets: secrets})
				if err := c.Publish(t.Context(), job); err != nil {
					t.Errorf("it refuses what we send: %v", err)
				}
				if got, want := <-lines, job.ID+" job.completed a"; got != want {
					t.Errorf("it has read %q, want %q", got, want)
				}
			}
			secret, err := webhook.ParseSecrets(secretTwo)
			if err != nil {
				t.Fatal(err)
			}
			other, err := webhook.ParseSecrets(secretOne)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			for name, f := range map[string]func(h http.Header) []byte{
				"another body": func(http.Header) []byte { return append([]byte(" "), job.Payload...) },
				"another id": func(h http.Header) []byte {
					h.Set(webhook.HeaderID, "shop:default:1763762400000-1")
					return job.Payload
				},
				"another secret": func(h http.Header) []byte {
					h.Set(webhook.HeaderSignature, webhook.Sign(other, job.ID, now, job.Payload))
					return job.Payload
				},
				"an old one": func(h http.Header) []byte {
					old := now.Add(-6 * time.Minute)
					h.Set(webhook.HeaderTimestamp, webhook.Timestamp(old))
					h.Set(webhook.HeaderSignature, webhook.Sign(secret, job.ID, old, job.Payload))
					return job.Payload
				},
				"one of the future": func(h http.Header) []byte {
					later := now.Add(6 * time.Minute)
					h.Set(webhook.HeaderTimestamp, webhook.Timestamp(later))
					h.Set(webhook.HeaderSignature, webhook.Sign(secret, job.ID, later, job.Payload))
					return job.Payload
				},
				"no instant": func(h http.Header) []byte {
					h.Set(webhook.HeaderTimestamp, "now")
					return job.Payload
				},
				"no signature": func(h http.Header) []byte {
					h.Del(webhook.HeaderSignature)
					return job.Payload
				},
				"an empty signature": func(h http.Header) []byte {
					h.Set(webhook.HeaderSignature, "v1,")
					return job.Payload
				},
				"no headers": func(h http.Header) []byte {
					clear(h)
					return job.Payload
				},
			} {
				h := http.Header{}
				h.Set(webhook.HeaderID, job.ID)
				h.Set(webhook.HeaderTimestamp, webhook.Timestamp(now))
				h.Set(webhook.HeaderSignature, webhook.Sign(secret, job.ID, now, job.Payload))
				body := f(h)
				if code := post(t, url, h, body); code != http.StatusUnauthorized {
					t.Errorf("%s: answered %d, want 401", name, code)
				}
			}
			wantBounded(t, address)
		})
	}
}

// installed is a command by an interpreter; make test installs it.
func installed(interpreter, file string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		path, err := exec.LookPath(interpreter)
		if err != nil {
			t.Fatalf("%s is not installed: run make interpreters", interpreter)
		}
		return []string{path, file}
	}
}

// run starts a receiver and returns its address and the lines that it prints from then on.
func run(t *testing.T, command []string, environ ...string) (address string, lines <-chan string) {
	t.Helper()
	var problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environ...)
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 100)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(said)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			said <- scan.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	select {
	case first := <-said:
		address, ok := strings.CutPrefix(first, "listening on ")
		if !ok {
			_ = cmd.Process.Kill()
			<-read
			_ = cmd.Wait()
			t.Fatalf("it began with %q: %s", first, problems.String())
		}
		return address, said
	case <-time.After(time.Minute):
		t.Fatal("it has not started within a minute")
	}
	return "", nil
}

func post(t *testing.T, url string, h http.Header, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(fmt.Errorf("post: %w", err))
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
