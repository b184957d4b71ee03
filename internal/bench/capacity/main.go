// Command capacity measures what a machine carries: how fast jobs are enqueued and
// published, what they take in Redis, and what a worker costs.
//
//	go run ./internal/bench/capacity [-write] [-quick]
//
// It starts the redis-servers (append-only file, synced every second), the API and the
// worker processes that it needs, and ends them; all of it shares this machine. It takes
// less than three minutes. -write puts the table into docs/operations.md. -quick tries
// everything with a fraction of the jobs, which proves nothing about the figures.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) //nolint:forbidigo // main exits
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "capacity:", err)
		os.Exit(1) //nolint:forbidigo // main exits
	}
}

// plan is how much is done to measure.
type plan struct {
	rounds int // of what is repeated; medians are told
	// Jobs of one round.
	single, many, idle, http, synced int
	waiting                          int           // jobs that wait in Redis while it is looked at
	quiet                            time.Duration // for which commands of idle workers are counted
	scrapes, commands                int           // how often /metrics is read, and commands are run
}

var (
	whole = plan{
		rounds: 3, single: 20_000, many: 100_000, idle: 80_000, http: 30_000, synced: 15_000,
		waiting: 100_000, quiet: 10 * time.Second, scrapes: 3, commands: 5,
	}
	quick = plan{
		rounds: 1, single: 500, many: 2000, idle: 4000, http: 1000, synced: 500,
		waiting: 2000, quiet: 3 * time.Second, scrapes: 1, commands: 1,
	}
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("capacity", flag.ContinueOnError)
	flags.SetOutput(stderr)
	write := flags.Bool("write", false, "write the table into docs/operations.md")
	short := flags.Bool("quick", false, "try everything with a fraction of the jobs")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() > 0 || *write && *short {
		return errors.New("want no other arguments, and -write without -quick")
	}
	p := whole
	if *short {
		p = quick
	}
	f, err := measure(ctx, p, stderr)
	if err != nil {
		return err
	}
	text := f.report(p)
	fmt.Fprint(stdout, text)
	if *write {
		return writeSection(text)
	}
	return nil
}

// measure does all of it, one after the other.
func measure(ctx context.Context, p plan, progress io.Writer) (figures, error) {
	var f figures
	started := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context, testing.TB, plan, *figures) error
	}{
		{"enqueue", measureEnqueue},
		{"publish, nothing done", measureIdleHandler},
		{"publish over HTTP", measureHTTP},
		{"publish, other settings of appendfsync", measureSync},
		{"memory of waiting jobs", measureMemory},
		{"idle workers, scrapes, commands", measureLooks},
	} {
		fmt.Fprintf(progress, "%4.0f s  %s\n", time.Since(started).Seconds(), step.name)
		err := rig.Do(ctx, step.name, func(t testing.TB) error { return step.do(ctx, t, p, &f) })
		if err != nil {
			return f, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Fprintf(progress, "%4.0f s  done\n", time.Since(started).Seconds())
	return f, nil
}
