// Command api measures the HTTP API: how fast jobs are enqueued through it, in batches
// beside the Go client in the same run and one by one under load, and what subscribers
// of events cost Redis.
//
//	go run ./internal/bench/api [-write] [-quick]
//
// It starts a redis-server and "tidegate api" as a process of its own, and ends them;
// all of it shares this machine. It takes about two minutes. -write puts the tables into
// docs/benchmarks.md. -quick tries everything with a fraction of the jobs, which proves
// nothing about the figures.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if os.Getenv(roleEnv) != "" {
		do = serve
	}
	if err := do(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1) //nolint:forbidigo // main exits
	}
}

// plan is how much is done to measure.
type plan struct {
	rounds int           // of what is repeated; medians are told
	jobs   int           // of one round of batches
	single time.Duration // of one round of single enqueues
	listen time.Duration // for which Redis's commands are counted
}

var (
	whole = plan{rounds: 3, jobs: 100_000, single: 5 * time.Second, listen: 10 * time.Second}
	quick = plan{rounds: 1, jobs: 4000, single: time.Second, listen: 2 * time.Second}
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("api", flag.ContinueOnError)
	flags.SetOutput(stderr)
	write := flags.Bool("write", false, "write the tables into docs/benchmarks.md")
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
		return rig.WriteSection("api", text)
	}
	return nil
}

// figures are what was measured.
type figures struct {
	batches []rate
	singles []single
	events  []cost
}

// measure does all of it, one after the other.
func measure(ctx context.Context, p plan, progress io.Writer) (figures, error) {
	var f figures
	started := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context, *stage, plan, *figures) error
	}{
		{"batches", measureBatches},
		{"single enqueues", measureSingles},
		{"subscribers of events", measureEvents},
	} {
		fmt.Fprintf(progress, "%4.0f s  %s\n", time.Since(started).Seconds(), step.name)
		err := rig.Do(ctx, step.name, func(t testing.TB) error {
			s, err := newStage(ctx, t)
			if err != nil {
				return err
			}
			return step.do(ctx, s, p, &f)
		})
		if err != nil {
			return f, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Fprintf(progress, "%4.0f s  done\n", time.Since(started).Seconds())
	return f, nil
}
