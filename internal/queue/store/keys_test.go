package store_test

import (
	"strings"
	"testing"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/go-cmp/cmp"
)

func TestQueueRoundTrip(t *testing.T) {
	t.Parallel()
	want := map[store.Priority]string{
		store.High: "tidegate:devian-t1:high", store.Default: "tidegate:devian-t1", store.Low: "tidegate:devian-t1:low",
	}
	for _, p := range store.Priorities {
		queue := store.DefaultNamespace.Queue("devian-t1", p)
		if queue != want[p] {
			t.Errorf("queue of priority %s is %s, want %s", p, queue, want[p])
		}
		if d, back, ok := store.ParseQueue(queue); d != "devian-t1" || back != p || !ok {
			t.Errorf("%s is parsed as %q, %q, %t", queue, d, back, ok)
		}
	}
	if got := store.DefaultNamespace.Queue("d", ""); got != "tidegate:d" {
		t.Errorf("without a priority the queue is %s", got)
	}
	// Names of destinations that look like priorities.
	for _, name := range []string{"high", "low", "default"} {
		for _, p := range store.Priorities {
			if d, back, ok := store.ParseQueue(store.DefaultNamespace.Queue(name, p)); d != name || back != p || !ok {
				t.Errorf("%s is parsed as %q, %q, %t", store.DefaultNamespace.Queue(name, p), d, back, ok)
			}
		}
	}
	if diff := cmp.Diff([]string{"tidegate:d:high", "tidegate:d", "tidegate:d:low"}, store.DefaultNamespace.Queues("d")); diff != "" {
		t.Errorf("queues, the most urgent first (-want +got):\n%s", diff)
	}
}

func TestParseQueueOfOthers(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{
		"", "default", "tidegate", "tidegate:", "tidegate-alerts", "Tidegate:d", " tidegate:d", "other:tidegate:d",
		"tidegate::high", "tidegate:d:", "tidegate:d:urgent", "tidegate:d:default", "tidegate:d:high:low", "tidegate:d:HIGH",
	} {
		if d, p, ok := store.ParseQueue(queue); ok || d != "" || p != "" {
			t.Errorf("%q is taken for ours: %q, %q, %t", queue, d, p, ok)
		}
		if store.DefaultNamespace.Owns(queue) {
			t.Errorf("the default namespace owns %q", queue)
		}
	}
}

func TestNamespaces(t *testing.T) {
	t.Parallel()
	for _, valid := range []store.Namespace{"tidegate", "a", "7", "a-b-", store.Namespace(strings.Repeat("x", 31))} {
		if err := valid.Validate(); err != nil {
			t.Errorf("%q: %v", valid, err)
		}
		for _, queue := range valid.Queues("d") {
			if d, _, ok := store.ParseQueue(queue); d != "d" || !ok || !valid.Owns(queue) {
				t.Errorf("%s is parsed as %q, %t", queue, d, ok)
			}
			if key := store.HeldKey(queue); key != string(valid)+":{"+queue+"}:held" {
				t.Errorf("a key of %s is %s", queue, key)
			}
			// The beginning of one is not the other.
			if (valid + "-").Owns(queue) || valid[1:].Owns(queue) || valid[:len(valid)-1].Owns(queue) {
				t.Errorf("another namespace owns %s", queue)
			}
		}
	}
	for _, wrong := range []store.Namespace{"", "-a", "A", "a:b", "a{b}", "a b", "ä", store.Namespace(strings.Repeat("x", 32))} {
		if err := wrong.Validate(); err == nil || !strings.Contains(err.Error(), "[a-z0-9][a-z0-9-]{0,30}") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// The keys are asynq's own, which its tools and its scripts read.
func TestKeys(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"asynq:{tidegate:d:low}:t:":        store.TaskPrefix("tidegate:d:low"),
		"asynq:{tidegate:d:low}:t:i":       store.TaskKey("tidegate:d:low", "i"),
		"asynq:{tidegate:d:low}:pending":   store.PendingKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:active":    store.ActiveKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:lease":     store.LeaseKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:scheduled": store.ScheduledKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:retry":     store.RetryKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:completed": store.CompletedKey("tidegate:d:low"),
		"asynq:{tidegate:d:low}:paused":    store.PausedKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:failed": store.FailedKey("tidegate:d:low"),
		// Our own, in the same slot, which the scripts derive from the queue.
		"tidegate:{tidegate:d:low}:cancelled":  store.ParkedKey("tidegate:d:low", store.StateCancelled),
		"tidegate:{tidegate:d:low}:expired":    store.ParkedKey("tidegate:d:low", store.StateExpired),
		"tidegate:{tidegate:d:low}:paused":     store.ParkedKey("tidegate:d:low", store.StatePaused),
		"tidegate:{tidegate:d:low}:waiting":    store.ParkedKey("tidegate:d:low", store.StateWaiting),
		"tidegate:{tidegate:d:low}:held":       store.HeldKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:held:k":     store.HeldJobsKey("tidegate:d:low", "k"),
		"tidegate:{tidegate:d:low}:held_keys":  store.HeldIndexKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:due":        store.DueKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:deferred:d": store.DeferredKey("tidegate:d:low", "d"),
		"tidegate:{tidegate:d:low}:expiry":     store.ExpiryKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:batch:b":    store.BatchKey("tidegate:d:low", "b"),
		"tidegate:{tidegate:d:low}:batches":    store.BatchesKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:tombstones": store.TombstonesKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:actions":    store.ActionsKey("tidegate:d:low"),
		"tidegate:{tidegate:d:low}:children:i": store.ChildrenKey("tidegate:d:low", "i"),
		"tidegate:{tidegate:d:low}:outbox":     store.OutboxKey("tidegate:d:low"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
