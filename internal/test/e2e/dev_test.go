package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// "tidegate dev" publishes at once, ends in order at Ctrl-C, and keeps its jobs over that and over a kill.
func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	url := fmt.Sprintf("http://127.0.0.1:%d", redistest.Port(t))
	start := func() (*exec.Cmd, *loggingtest.Buffer) {
		out := &loggingtest.Buffer{}
		cmd := exec.CommandContext(t.Context(), binary, "dev", "--fake", "100/1s")
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "LISTEN_ADDR=" + strings.TrimPrefix(url, "http://")}
		cmd.Stdout, cmd.Stderr = out, out
		dieWithUs(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	completed := func(id string) bool {
		resp, err := client.Get(url + "/v1/jobs/" + id)
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		return err == nil && bytes.Contains(body, []byte(`"completed"`))
	}
	publish := func(id string) {
		t.Helper()
		redistest.Eventually(t, "the job is enqueued", func() bool {
			resp, err := client.Post(url+"/v1/jobs", "application/json", strings.NewReader(`{"id":"`+id+`","destination":"demo","payload":{}}`))
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusCreated
		})
		redistest.Eventually(t, "the job is completed", func() bool { return completed(id) })
	}

	began := time.Now()
	cmd, out := start()
	publish("first")
	t.Logf("from start to the first published job: %s", time.Since(began))
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("after Ctrl-C: %v\n%s", err, out.String())
	}

	cmd, _ = start()
	redistest.Eventually(t, "the job is still there", func() bool { return completed("first") })
	publish("second")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	cmd, out = start()
	redistest.Eventually(t, "both are still there", func() bool { return completed("first") && completed("second") })
	publish("third")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("after SIGTERM: %v\n%s", err, out.String())
	}
}

// Where nothing is installed "tidegate dev" runs all the same, says that jobs end with it, and ends in order.
func TestDevWithoutRedisServer(t *testing.T) {
	t.Parallel()
	out := &loggingtest.Buffer{}
	cmd := exec.CommandContext(t.Context(), binary, "dev", "--fake", "20/10s")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = t.TempDir(), []string{"LISTEN_ADDR=127.0.0.1:0"}, out, out
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "it serves", func() bool { return strings.Contains(out.String(), "Ctrl-C stops it.") })
	if want := "Redis is in this process, and its jobs end with it: redis-server is not on PATH.\n"; !strings.Contains(out.String(), want) {
		t.Errorf("does not say %q:\n%s", want, out.String())
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Post(regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(out.String())+"/to/demo/posts", "application/json", strings.NewReader("{}"))
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		t.Errorf("a call through the gateway: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("after Ctrl-C: %v\n%s", err, out.String())
	}
}
