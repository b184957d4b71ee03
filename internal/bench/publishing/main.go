// Command publishing compares what becomes of a backlog at a rate-limited API: with
// plain asynq, with asynq and the shared breaker that people write first, and with
// Tidegate.
//
//	go run ./internal/bench/publishing [-write] [-only penalty] [-runs 3]
//
// Each run has an API over HTTP, a redis-server and worker processes of its own, and
// ends them. -write puts the table into docs/benchmarks.md and the plot into
// docs/images/publishing.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

func main() {
	// Signals of a terminal reach the workers too; they end when we let go of them.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "publishing:", err)
		os.Exit(1) //nolint:forbidigo // main exits
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if text := os.Getenv(workerEnv); text != "" {
		return work(context.WithoutCancel(ctx), text, stdin, stdout)
	}
	flags := flag.NewFlagSet("publishing", flag.ContinueOnError)
	flags.SetOutput(stderr)
	runs := flags.Int("runs", 3, "runs of each; medians are printed")
	parallel := flags.Int("parallel", 8, "how many run at the same time")
	only := flags.String("only", "", "only the API whose name contains this")
	jitter := flags.Duration("jitter", 0, "the longest random pause that bare asynq adds to each retry")
	write := flags.Bool("write", false, "write docs/benchmarks.md and docs/images/publishing.svg")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *runs < 1 || *parallel < 1 || *jitter < 0 || flags.NArg() > 0 {
		return errors.New("want -runs and -parallel above 0, -jitter not below, and no other arguments")
	}
	if *write && (*only != "" || *jitter != 0) {
		return errors.New("-write is for the whole comparison: leave -only and -jitter out")
	}
	cells := cells(*only)
	if len(cells) == 0 {
		return fmt.Errorf("no API's name contains %q", *only)
	}
	if err := measureAll(ctx, cells, *runs, *parallel, *jitter, stderr); err != nil {
		return err
	}
	text := report(cells, *runs, *parallel)
	fmt.Fprint(stdout, text)
	if !*write {
		return nil
	}
	if err := writePlot(cells); err != nil {
		return err
	}
	return rig.WriteSection("publishing", text)
}

func writePlot(cells []*cell) error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	file := filepath.Join(root, "docs", "images", "publishing.svg")
	if err := os.WriteFile(file, []byte(plot(panels(cells))), 0o644); err != nil { //nolint:gosec // a picture for all to see
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}
