package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// However a child learns that its parent has completed, it gets the output: as it is enqueued,
// when it is released, and after a retry.
func TestChildrenGetOutputs(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		t.Helper()
		b, other := benchOn(t, rdb), benchOn(t, rdb)
		parent := b.enqueue(jobs.ID(b.dest + "-7:upload"))
		waits := other.enqueue(jobs.After(parent.ID))
		retried := other.enqueue(jobs.After(parent.ID))
		b.must(other.Cancel(context.Background(), retried.ID))
		b.start(parent)
		b.finish(parent, store.StateCompleted, time.Now(), store.FieldOutput, `{"itemid":7}`)
		late := other.enqueue(jobs.After(parent.ID))
		b.work(b.queue())
		b.must(other.Retry(context.Background(), retried.ID))
		for _, child := range []*jobs.Job{waits, late, retried} {
			got := b.get(child.ID)
			for _, name := range []string{parent.ID, "upload"} {
				var out struct{ ItemID int }
				if err := got.ParentOutput(name, &out); err != nil || out.ItemID != 7 || got.Status != jobs.Pending {
					t.Errorf("child %s: %s, output of %s %+v, %v", child.ID, got.Status, name, out, err)
				}
			}
			if got.Output != nil {
				t.Errorf("child %s has the output %s", child.ID, got.Output)
			}
		}
	})
}

// A child keeps 1 MiB of outputs. Those beyond are not kept, and it is released all the same.
func TestOutputsOfManyParents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var ids []string
	for range 20 {
		ids = append(ids, b.enqueue().ID)
	}
	child := b.enqueue(jobs.After(ids...))
	for i, id := range ids {
		output := fmt.Sprintf("%q", strings.Repeat("x", jobs.MaxOutputBytes-2))
		if i == len(ids)-1 {
			output = `"small"`
		}
		parent := b.get(id)
		b.start(parent)
		b.finish(parent, store.StateCompleted, time.Now(), store.FieldOutput, output)
		b.tell(parent)
	}
	got := b.get(child.ID)
	kept := 0
	for i, id := range ids {
		var text string
		err := got.ParentOutput(id, &text)
		switch {
		case err == nil && text != "":
			kept += len(text) + 2
		case err == nil || !strings.Contains(err.Error(), "the outputs of all parents have more than the 1048576 bytes together that a job keeps"):
			t.Errorf("parent %d: %d bytes, %v", i, len(text), err)
		}
	}
	if got.Status != jobs.Pending || kept != 1<<20 {
		t.Errorf("the child is %s with %d bytes of outputs", got.Status, kept)
	}
}
