package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/bench/rig"
)

// TestMain lets the test binary be the children, as the command is its own.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// tiny is enough for every figure to have a value.
var tiny = plan{
	rounds: 1, single: 40, many: 200, idle: 200, http: 100, synced: 100,
	waiting: 200, quiet: 3 * time.Second, scrapes: 1, commands: 1,
}

func TestEveryFigureIsMeasured(t *testing.T) {
	t.Parallel()
	f, err := measure(t.Context(), tiny, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]float64{
		"enqueue1": f.enqueue1, "enqueue16": f.enqueue16, "enqueueMany": f.enqueueMany,
		"everysec.enqueue1": f.everysec.enqueue1, "always.enqueue16": f.always.enqueue16,
		"workerIdle": f.workerIdle, "connectionsIdle": f.connectionsIdle, "connectionsMore": f.connectionsMore,
		"commandsOne": f.commandsOne,
		"scrapeEmpty": f.scrapeEmpty, "scrapeFull": f.scrapeFull, "scrapeAgain": f.scrapeAgain, "scrapeSize": f.scrapeSize,
		"stats": f.stats, "list": f.list, "listLong": f.listLong, "version": f.version,
	} {
		if name == "workerIdle" && memory(os.Getpid(), "VmRSS") == 0 {
			continue // only Linux tells
		}
		if v <= 0 {
			t.Errorf("%s = %v, want more than 0", name, v)
		}
	}
	// A payload is kept once, and Redis rounds up.
	if got := f.waitingLarge - f.waitingSmall; got < 800 || got > 3000 {
		t.Errorf("900 bytes more of payload take %.0f bytes more", got)
	}
	if f.waitingSmall < 300 || f.waitingSmall > 3000 {
		t.Errorf("a small job takes %.0f bytes", f.waitingSmall)
	}
	if f.aofOfJob < 500 {
		t.Errorf("a job of %d bytes has written %.0f bytes", usualPayload, f.aofOfJob)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := measure(ctx, tiny, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
}

func TestAWorkerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	_, err := startWorker(t.Context(), "redis://127.0.0.1:1", "no address", 1)
	if err == nil || !strings.Contains(err.Error(), "DESTINATION_0_URL") {
		t.Errorf("error %v, want one that names DESTINATION_0_URL", err)
	}
}

func TestPayloadHasItsSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 200, 1000} {
		if got := len(payload(size)); got != size {
			t.Errorf("payload(%d) has %d bytes", size, got)
		}
	}
}

func TestRateBetweenMarks(t *testing.T) {
	t.Parallel()
	start := mark{time.Unix(0, 0), 100}
	if got := (mark{time.Unix(2, 0), 700}).since(start); got != 300 {
		t.Errorf("600 jobs in 2 s are %v a second", got)
	}
	if got := start.since(start); got != 0 {
		t.Errorf("no time gives %v", got)
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 7.4: "7", 648.4: "648", 999.6: "1,000", 1764: "1,760", 17_250: "17,300", 181_499: "181,000", 1_000_000: "1,000,000",
	} {
		if got := group(n); got != want {
			t.Errorf("group(%v) = %q, want %q", n, got, want)
		}
	}
	for seconds, want := range map[float64]string{0.0037: "3.7 ms", 0.0726: "73 ms", 1.2: "1200 ms"} {
		if got := millis(seconds); got != want {
			t.Errorf("millis(%v) = %q, want %q", seconds, got, want)
		}
	}
	if got := megabytes(0); got != "not known on this system" {
		t.Errorf("megabytes(0) = %q", got)
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	got, err := replaceSection("head\n"+beginMark+"old\n"+endMark+"\ntail\n", "\nnew\nlines\n\n")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("head\n"+beginMark+"new\nlines\n"+endMark+"\ntail\n", got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	for _, doc := range []string{"", "head\n" + beginMark + "old\n", "old\n" + endMark} {
		if _, err := replaceSection(doc, "new"); err == nil {
			t.Errorf("no error for %q", doc)
		}
	}
}

// TestTheDocumentHasItsPlace holds docs/operations.md to the command that writes into it.
func TestTheDocumentHasItsPlace(t *testing.T) {
	t.Parallel()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replaceSection(string(doc), ""); err != nil {
		t.Error(err)
	}
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-write", "-quick"}, {"more"}, {"-unknown"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}
