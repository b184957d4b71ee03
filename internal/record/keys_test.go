package record_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/internal/record"
)

func TestQueueRoundTrip(t *testing.T) {
	t.Parallel()
	want := map[record.Priority]string{
		record.High: "tidegate:devian-t1:high", record.Default: "tidegate:devian-t1", record.Low: "tidegate:devian-t1:low",
	}
	for _, p := range record.Priorities {
		queue := record.Queue("devian-t1", p)
		if queue != want[p] {
			t.Errorf("queue of priority %s is %s, want %s", p, queue, want[p])
		}
		if d, back, ok := record.ParseQueue(queue); d != "devian-t1" || back != p || !ok {
			t.Errorf("%s is parsed as %q, %q, %t", queue, d, back, ok)
		}
	}
	if got := record.Queue("d", ""); got != "tidegate:d" {
		t.Errorf("without a priority the queue is %s", got)
	}
	// Names of destinations that look like priorities.
	for _, name := range []string{"high", "low", "default"} {
		for _, p := range record.Priorities {
			if d, back, ok := record.ParseQueue(record.Queue(name, p)); d != name || back != p || !ok {
				t.Errorf("%s is parsed as %q, %q, %t", record.Queue(name, p), d, back, ok)
			}
		}
	}
	if diff := cmp.Diff([]string{"tidegate:d:high", "tidegate:d", "tidegate:d:low"}, record.Queues("d")); diff != "" {
		t.Errorf("queues, the most urgent first (-want +got):\n%s", diff)
	}
}

func TestParseQueueOfOthers(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{
		"", "default", "tidegate", "tidegate:", "tidegate-alerts", "Tidegate:d", " tidegate:d", "other:tidegate:d",
		"tidegate::high", "tidegate:d:", "tidegate:d:urgent", "tidegate:d:default", "tidegate:d:high:low", "tidegate:d:HIGH",
	} {
		if d, p, ok := record.ParseQueue(queue); ok || d != "" || p != "" {
			t.Errorf("%q is taken for ours: %q, %q, %t", queue, d, p, ok)
		}
	}
}

// The keys are asynq's own, which its tools and its scripts read.
func TestKeys(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"asynq:{tidegate:d:low}:t:":        record.TaskPrefix("tidegate:d:low"),
		"asynq:{tidegate:d:low}:t:i":       record.Task("tidegate:d:low", "i"),
		"asynq:{tidegate:d:low}:pending":   record.Pending("tidegate:d:low"),
		"asynq:{tidegate:d:low}:active":    record.Active("tidegate:d:low"),
		"asynq:{tidegate:d:low}:lease":     record.Lease("tidegate:d:low"),
		"asynq:{tidegate:d:low}:scheduled": record.Scheduled("tidegate:d:low"),
		"asynq:{tidegate:d:low}:retry":     record.Retry("tidegate:d:low"),
		"asynq:{tidegate:d:low}:completed": record.Completed("tidegate:d:low"),
		"asynq:{tidegate:d:low}:paused":    record.Paused("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:failed": record.Failed("tidegate:d:low"),
		// Our own, in the same slot, which the scripts derive from the queue.
		"tidegate:{tidegate:d:low}:cancelled":  record.Parked("tidegate:d:low", record.StateCancelled),
		"tidegate:{tidegate:d:low}:expired":    record.Parked("tidegate:d:low", record.StateExpired),
		"tidegate:{tidegate:d:low}:paused":     record.Parked("tidegate:d:low", record.StatePaused),
		"tidegate:{tidegate:d:low}:waiting":    record.Parked("tidegate:d:low", record.StateWaiting),
		"tidegate:{tidegate:d:low}:held":       record.Held("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:held:k":     record.HeldOf("tidegate:d:low", "k"),
		"tidegate:{tidegate:d:low}:heldkeys":   record.HeldKeys("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:due":        record.Due("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:deferred:d": record.Deferred("tidegate:d:low", "d"),
		"tidegate:{tidegate:d:low}:expiry":     record.Expiry("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:batch:b":    record.Batch("tidegate:d:low", "b"),
		"tidegate:{tidegate:d:low}:batches":    record.Batches("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:ghosts":     record.Ghosts("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:marked":     record.Marked("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:children:i": record.Children("tidegate:d:low", "i"),
		"tidegate:{tidegate:d:low}:outbox":     record.Outbox("tidegate:d:low"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
