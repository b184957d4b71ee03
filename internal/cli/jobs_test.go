package cli

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/jobs"
)

func TestJobsMove(t *testing.T) {
	t.Parallel()
	b := newBench(t, append([]string{"DESTINATION_1_NAME=store", "DESTINATION_1_URL=https://store.example.com"}, shop...)...)
	b.enqueue(t, "", "a", "b", "c")
	b.enqueue(t, "--delay 1h", "d")
	b.run(t, "pause", "c").ok(t)

	b.run(t, "jobs", "move", "--from", "shop", "--to", "store").want(t, 0, `4 jobs would move from shop to store: 3 pending, 1 paused
nothing has moved yet; move with: tidegate jobs move --from shop --to store --yes
`, "tidegate: warning: no worker has served store yet; its jobs wait until one does\n")
	if j := b.job(t, "a"); j.Destination != "shop" {
		t.Errorf("a dry run has moved a job to %s", j.Destination)
	}
	// Two programs that gave an id to both destinations at once.
	rdb := b.server.Client(t)
	key := store.TaskKey(store.DefaultNamespace.Queue("store", store.Default), "b")
	rdb.HSet(t.Context(), key, store.FieldState, store.StateFailed, store.FieldMsg, "")
	b.run(t, "jobs", "move", "--from", "shop", "--to", "store", "--yes").want(t, 1, "moved 3 jobs from shop to store: 2 pending, 1 paused\n",
		"tidegate: warning: no worker has served store yet; its jobs wait until one does\n"+
			"tidegate: 1 job stays in shop, because store has a job of the same id: b\n")
	rdb.Del(t.Context(), key)
	got := b.run(t, "jobs", "move", "--from", "shop", "--to", "store", "--yes", "-o", "json")
	doc := decode[moveDocument](t, got.stdout)
	if doc.From != "shop" || doc.To != "store" || doc.DryRun || doc.Moved[jobs.Pending] != 1 || doc.Kept != 0 {
		t.Errorf("moved %s", got.stdout)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if j := b.job(t, id); j.Destination != "store" {
			t.Errorf("%s is in %s", id, j.Destination)
		}
	}
	b.wantStatuses(t, "a pending", "c paused")
	h := b.history(t, "a")
	if last := h[len(h)-1]; last.Event != "moved" || last.Detail != "from shop" || last.By != operator(t) {
		t.Errorf("history ends with %+v", last)
	}
	if got := b.run(t, "doctor", "--dry-run"); strings.Contains(got.stdout, "move_unfinished") {
		t.Errorf("the doctor finds\n%s", got.stdout)
	}

	b.run(t, "jobs", "move", "--from", "shop", "--to", "shop").want(t, 2, "", "tidegate: --to must be another destination than --from\n")
	b.run(t, "jobs", "move", "--from", "shop", "--to", "No").want(t, 2, "", "tidegate: \"No\" cannot be the name of a destination: 1 to 63 of a-z, 0-9 and -, starting with a letter or digit\n")
	b.run(t, "jobs", "move", "--from", "shop", "--to", "stor").want(t, 4, "", "tidegate: destination \"stor\" is not known; known are shop, store\n")
	b.run(t, "jobs", "move", "--from", "shpo", "--to", "store").want(t, 4, "", "tidegate: destination \"shpo\" is not known; known are shop, store\n")
	b.run(t, "jobs", "move", "--from", "shop").want(t, 2, "", "tidegate: missing flags: --to=NAME; run \"tidegate jobs move --help\"\n")
}
