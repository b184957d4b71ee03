// Tidegate publishes jobs to rate-limited APIs; see "tidegate --help".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // zones of RATE; images have no files of them

	"github.com/tidegate/tidegate/internal/cli"
)

// version and commit are set by the linker for a release:
//
//	go build -ldflags "-X main.version=v1.2.3 -X main.commit=…" ./cmd/tidegate
var version, commit string

func main() {
	signals := []os.Signal{syscall.SIGTERM, os.Interrupt}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// The first signal asks for a stop in order. After it signals have their usual
	// effect again, so that a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, cli.Process{
		Args:    os.Args[1:],
		Environ: os.Environ(),
		Stdin:   os.Stdin,
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
		Version: version,
		Commit:  commit,
	}))
}
