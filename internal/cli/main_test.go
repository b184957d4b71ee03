package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// shop is the environment of one destination.
var shop = []string{"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=https://api.example.com/items"}

// bench is a Redis of a test's own with the environment that leads to it.
type bench struct {
	server *redistest.Server
	env    []string
}

func newBench(t *testing.T, env ...string) *bench {
	t.Helper()
	server := redistest.Start(t)
	return &bench{server: server, env: append([]string{"REDIS_URL=" + server.URL()}, env...)}
}

// outcome is what a command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

func (b *bench) run(t *testing.T, args ...string) outcome {
	t.Helper()
	return runIn(t, b.env, "", args...)
}

func runIn(t *testing.T, env []string, stdin string, args ...string) outcome {
	t.Helper()
	return runFor(t, 30*time.Second, env, stdin, args...) // the machine may be busy
}

func runFor(t *testing.T, patience time.Duration, env []string, stdin string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	status := Run(ctx, Process{Args: args, Environ: env, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, patience: patience})
	return outcome{status: status, stdout: stdout.String(), stderr: stderr.String()}
}

// want checks an outcome against exact texts.
func (o outcome) want(t *testing.T, status int, stdout, stderr string) {
	t.Helper()
	if o.status != status || o.stdout != stdout || o.stderr != stderr {
		t.Errorf("exit status %d, stdout:\n%s\nstderr:\n%s\nwant exit status %d, stdout:\n%s\nstderr:\n%s",
			o.status, o.stdout, o.stderr, status, stdout, stderr)
	}
}

// ok fails the test unless the command succeeded without a word on stderr, and
// returns stdout.
func (o outcome) ok(t *testing.T) string {
	t.Helper()
	if o.status != 0 || o.stderr != "" {
		t.Fatalf("exit status %d, stderr:\n%s", o.status, o.stderr)
	}
	return o.stdout
}

// decode reads exactly one JSON document that has no field which T does not know.
func decode[T any](t *testing.T, document string) T {
	t.Helper()
	var v T
	dec := json.NewDecoder(strings.NewReader(document))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("decode: %v\n%s", err, document)
	}
	if dec.More() {
		t.Fatalf("more than one document:\n%s", document)
	}
	return v
}
