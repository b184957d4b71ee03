// Package bench measures Tidegate: what a machine carries, and what bare asynq, other
// breakers, and what one would write instead make of the same work. It is a module of
// its own, so that the programs compared with Tidegate are not its dependencies.
//
//	go test -C bench -run - -bench . -timeout 60m
//
// Each benchmark starts the redis-servers and processes that it needs and ends them; all
// of them share this machine. With -write the tables go into docs.
package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/tidegate/tidegate/internal/cli"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

var write = flag.Bool("write", false, "write the tables that are measured into docs")

// roleEnv makes the test binary one of the processes that are measured.
const roleEnv = "TIDEGATE_BENCH_ROLE"

const (
	roleTidegate  = "tidegate"  // the binary tidegate, with its arguments
	roleIdle      = "idle"      // publishers whose handlers do nothing; arguments: Redis's address, their number, that of their destinations
	rolePublisher = "publisher" // a worker of BenchmarkPublishing; argument: its task
	roleDrain     = "drain"     // a worker of BenchmarkDrain; argument: its task
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		flag.Parse()
		os.Exit(redistest.Main(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := runRole(ctx, cancel, role, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runRole is the main of a child. It ends when stdin does, so that no child outlives the
// process that started it.
func runRole(ctx context.Context, cancel func(), role string, args []string) error {
	if role == rolePublisher {
		return publishTask(ctx, args[0], os.Stdin, os.Stdout)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch role {
	case roleIdle:
		return publishNothing(ctx, args, os.Stdout)
	case roleDrain:
		return drain(ctx, args[0])
	}
	status := cli.Run(ctx, cli.Process{
		Args: args, Environ: os.Environ(), Stdin: strings.NewReader(""), Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if status != 0 {
		return fmt.Errorf("exit status %d", status)
	}
	return nil
}
