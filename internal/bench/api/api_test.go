package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the API, as the command is its own.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEveryFigureIsMeasured(t *testing.T) {
	t.Parallel()
	p := plan{rounds: 1, jobs: 2000, single: 100 * time.Millisecond, listen: time.Second}
	f, err := measure(t.Context(), p, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.batches) != 4 || len(f.singles) != 6 || len(f.events) != 3 {
		t.Fatalf("%d, %d and %d figures", len(f.batches), len(f.singles), len(f.events))
	}
	for _, r := range f.batches {
		if r.median <= 0 {
			t.Errorf("%s: %v jobs/s", r.way, r.median)
		}
	}
	for _, s := range f.singles {
		if s.perSecond <= 0 || s.p50 <= 0 || s.p99 < s.p50 {
			t.Errorf("%+v", s)
		}
	}
	for _, e := range f.events[1:] {
		if e.heard < 1 || e.busy <= 0 {
			t.Errorf("%+v, want all events heard", e)
		}
	}
	// 200 subscribers cost what one costs: the figures are of a second each.
	if one, many := f.events[1], f.events[2]; many.quiet > 1.5*one.quiet+5 || many.busy > 1.5*one.busy+5 {
		t.Errorf("one subscriber %+v, 200 %+v", one, many)
	}
	for _, want := range []string{"| HTTP, lines, one request ", "| 200 ", "p99"} {
		if text := f.report(p); !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 999: "999", 1234: "1,230", 98_765: "98,800", 1_234_567: "1,230,000"} {
		if got := count(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}
