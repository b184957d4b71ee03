// Command peers compares the closed path of Tidegate's breaker with those of other
// breakers, side by side in one run:
//
//	cd internal/bench/peers && go run . [-write]
//
// It starts a redis-server on a free port and stops it in the end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/bench/rig"
	"github.com/tidegate/tidegate/internal/redistest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1) //nolint:forbidigo // main exits
	}
}

// goroutines that call at once.
const few, many = 1, 8

// slowCall is how long a call takes in the last columns, and slowRound how long that
// is measured: pauses of a lock that is taken even out.
const (
	slowCall  = 20 * time.Millisecond
	slowRound = 4 * time.Second
)

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 5, "rounds of each contender, in turn; medians are printed")
	length := flags.Duration("round", 400*time.Millisecond, "length of a round")
	write := flags.Bool("write", false, "write the table to docs/benchmarks.md")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *rounds < 1 || *length <= 0 || flags.NArg() > 0 {
		return errors.New("want -rounds and -round above 0, and no other arguments")
	}
	var results []result
	err := rig.Do(ctx, "peers", func(t testing.TB) (err error) {
		results, err = compare(ctx, t, *rounds, *length, stderr)
		return err
	})
	if err != nil {
		return err
	}
	text := report(results, *rounds, *length)
	fmt.Fprint(stdout, text)
	if *write {
		return rig.WriteSection("peers", text)
	}
	return nil
}

// result is all that was measured of one contender.
type result struct {
	contender
	few, many []figures
	slow      figures // 8 goroutines, calls that take time
}

func compare(ctx context.Context, t testing.TB, rounds int, length time.Duration, progress io.Writer) ([]result, error) {
	server := redistest.Start(t)
	var results []result
	for _, c := range contenders() {
		results = append(results, result{contender: c})
	}
	for n := range rounds {
		fmt.Fprintf(progress, "round %d of %d\n", n+1, rounds)
		for i := range results {
			r := &results[i]
			one, err := round(ctx, t, server, r.contender, few, length, nothing, false)
			if err != nil {
				return nil, err
			}
			eight, err := round(ctx, t, server, r.contender, many, length, nothing, false)
			if err != nil {
				return nil, err
			}
			r.few, r.many = append(r.few, one), append(r.many, eight)
		}
	}
	fmt.Fprintln(progress, "calls that take time")
	for i := range results {
		r := &results[i]
		var err error
		if r.slow, err = round(ctx, t, server, r.contender, many, slowRound, takesTime(ctx), true); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func takesTime(ctx context.Context) func() error {
	return func() error {
		select {
		case <-time.After(slowCall):
		case <-ctx.Done():
		}
		return nil
	}
}

func report(results []result, rounds int, length time.Duration) string {
	rows := [][]string{{
		"a call that succeeds", "shared", "1 goroutine", "8 goroutines", "allocations", "Redis commands",
		fmt.Sprintf("8 × %s", slowCall), "the longest",
	}}
	for _, r := range results {
		shared := "no"
		if r.shared {
			shared = "yes"
		}
		rows = append(rows, []string{
			r.name, shared, nanoseconds(median(r.few, func(f figures) float64 { return f.ns })),
			nanoseconds(median(r.many, func(f figures) float64 { return f.ns })),
			count(median(r.few, func(f figures) float64 { return f.allocs })),
			count(median(r.few, func(f figures) float64 { return f.commands })),
			fmt.Sprintf("%.0f calls/s", r.slow.perSec), fmt.Sprintf("%d ms", r.slow.slowest.Milliseconds()),
		})
	}
	return rig.Table(2, rows) + fmt.Sprintf(`
Medians of %d rounds of %s run in turn, %s on %d CPUs. The times are of the clock per
call, all goroutines together; the call itself does nothing. Commands inside scripts
count. "8 × %s": 8 goroutines whose calls take that long (400 calls/s would be no
delay at all), and the longest that one call took.
`, rounds, length, runtime.Version(), runtime.NumCPU(), slowCall)
}

func median(all []figures, of func(figures) float64) float64 {
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	return rig.Median(values)
}

// nanoseconds prints a time with the figures that mean something.
func nanoseconds(ns float64) string {
	switch {
	case ns < 1000:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 10_000:
		return fmt.Sprintf("%.1f µs", ns/1000)
	default:
		return fmt.Sprintf("%.0f µs", ns/1000)
	}
}

// count prints allocations or commands per call; what happens a few times a second
// beside a million calls is none.
func count(n float64) string {
	text := strconv.FormatFloat(n, 'f', 1, 64)
	if n < 0.05 {
		return "0"
	}
	return text
}
