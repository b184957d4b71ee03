package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/loggingtest"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// enqueue --wait says why the job waits, before it has ended.
func TestWaitSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stdout bytes.Buffer
	var stderr loggingtest.Buffer
	status := make(chan int)
	go func() {
		status <- Run(ctx, Process{Args: []string{"enqueue", "-d", "shop", "--id", "a", "--wait"}, Environ: b.env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	}()
	redistest.Eventually(t, "it says why", func() bool {
		return strings.Contains(stderr.String(), "it waits: no worker has served shop yet; start one with: tidegate worker\n")
	})
	stop()
	if got := <-status; got != 1 || stdout.Len() > 0 || strings.Count(stderr.String(), "it waits: ") != 1 {
		t.Errorf("exit status %d, stdout %q, stderr %q", got, stdout.String(), stderr.String())
	}
}
