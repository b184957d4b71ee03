package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/tidegate/tidegate/internal/queue/doctor"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "doctor").want(t, 0, "checked 0 jobs: no problems found\n", "")
	b.run(t, "doctor", "-o", "json").want(t, 0, "{\"findings\":[],\"checked\":0}\n", "")
	b.serve(t, "shop")
	b.enqueue(t, "", "a", "b")
	b.run(t, "doctor").want(t, 0, "checked 2 jobs: no problems found\n", "")

	// What a Redis that has lost its last writes may leave: a job that is in no list.
	rdb := b.server.Client(t)
	const queue = "tidegate:shop"
	if err := rdb.LRem(t.Context(), store.PendingKey(queue), 1, "a").Err(); err != nil {
		t.Fatal(err)
	}
	found := func(repaired string) string {
		return "FOUND  QUEUE          COUNT  REPAIRED  EXAMPLE  DETAIL\n" +
			"lost   tidegate:shop  1      " + repaired + "  a        in no index; returns to the index of its state\n" +
			"checked 2 jobs: 1 finding\n"
	}
	for range 2 { // a dry run changes nothing
		b.run(t, "doctor", "--dry-run").want(t, 1, found("no      "), "tidegate: nothing was repaired; run it without --dry-run\n")
	}
	got := b.run(t, "doctor", "--dry-run", "-o", "json")
	if doc := decode[doctor.Report](t, got.stdout); got.status != 1 || doc.Checked != 2 || len(doc.Findings) != 1 || doc.Findings[0].ID != "a" || doc.Findings[0].Repaired {
		t.Errorf("exit status %d, report %+v", got.status, doc)
	}
	b.run(t, "doctor").want(t, 0, found("yes     "), "")
	b.run(t, "doctor").want(t, 0, "checked 2 jobs: no problems found\n", "")
	b.wantStatuses(t, "a pending")
	if n := rdb.LLen(t.Context(), store.PendingKey(queue)).Val(); n != 2 {
		t.Errorf("%d jobs in the list, want 2", n)
	}
}

// A dry run promises only what a run does.
func TestDryRunPromisesNoRepairByHand(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.enqueue(t, "", "a", "b")
	if err := b.server.Client(t).LRem(t.Context(), store.PendingKey("tidegate:shop"), 1, "a").Err(); err != nil {
		t.Fatal(err)
	}
	const both = "tidegate: nothing was repaired; without --dry-run, 1 of 2 findings would be: see to the rest\n"
	if got := b.run(t, "doctor", "--dry-run"); got.status != 1 || got.stderr != both {
		t.Errorf("status %d, stderr %q, want %q", got.status, got.stderr, both)
	}
	b.run(t, "doctor")
	const none = "tidegate: no run repairs what was found: see to it\n"
	if got := b.run(t, "doctor", "--dry-run"); got.status != 1 || got.stderr != none {
		t.Errorf("status %d, stderr %q, want %q", got.status, got.stderr, none)
	}
}

func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	status := Run(ctx, Process{Args: []string{"doctor"}, Environ: b.env, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr})
	if status != 1 || stdout.Len() > 0 || stderr.String() != "tidegate: interrupted\n" {
		t.Errorf("exit status %d, stdout %q, stderr %q", status, stdout.String(), stderr.String())
	}
}
