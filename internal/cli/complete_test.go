package cli

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// accept has a worker call a job of the shop that its API accepts.
func (b *bench) accept(t *testing.T, id string) {
	t.Helper()
	rdb, queue := b.server.Client(t), store.DefaultNamespace.Queue("shop", store.Default)
	b.enqueue(t, "", id)
	if _, err := store.Fetch(t.Context(), rdb, store.FetchArgs{Queue: queue, Run: "host:1-" + id, Worker: "host:1", Max: 1}); err != nil {
		t.Fatal(err)
	}
	o := store.Outcome{Kind: store.KindAccept, At: time.Now().Add(time.Hour), Terms: store.Terms{Retention: time.Hour, Timeout: -1, Explicit: -1}.String()}
	if _, err := store.Apply(t.Context(), rdb, queue, id, "", o); err != nil {
		t.Fatal(err)
	}
}

func TestCompleteAndFail(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.accept(t, "good")
	b.accept(t, "bad")
	if out := b.run(t, "get", "good").ok(t); !strings.Contains(out, "without a result it fails in") || strings.Contains(out, "available") {
		t.Errorf("get of an accepted job:\n%s", out)
	}
	b.run(t, "complete", "good", "--result", `{"n":7}`).want(t, 0, "reported job good as completed\n", "")
	b.run(t, "complete", "good", "--result", `{"n":7}`).want(t, 0, "reported job good as completed\n", "")
	b.run(t, "fail", "bad", "--error", "damaged").want(t, 0, "reported job bad as failed\n", "")
	b.wantStatuses(t, "good completed", "bad failed")
	if good, bad := b.job(t, "good"), b.job(t, "bad"); string(good.Output) != `{"n":7}` || bad.LastError != "damaged" {
		t.Errorf("output %s, last error %q", good.Output, bad.LastError)
	}
	b.accept(t, "third")
	b.run(t, "cancel", "--destination", "shop", "--status", "running").want(t, 0, "cancelled 1 job\n", "")
	b.wantStatuses(t, "third cancelled")
	b.enqueue(t, "", "pending")
	b.run(t, "complete", "pending").want(t, 1, "", "tidegate: job pending cannot be completed or failed from outside: it is pending\n")
	b.run(t, "fail", "none").want(t, 4, "", "tidegate: no job has the id \"none\"; it never existed, or its retention has ended\n")
	b.run(t, "complete", "pending", "--result", "{").want(t, 2, "", "tidegate: output: is not valid JSON\n")
}

// The outcome of a response, as tried by hand.
func TestAcceptedAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, append(shop, "DESTINATION_0_TRUST_OUTCOME=true")...)
	got := decode[triedAnswer](t, b.run(t, "answers", "test", "--status", "202", "--header", "Tidegate-Outcome: accepted; within=2h", "-o", "json").ok(t))
	if got.Outcome != "accepted" || got.Wait < 7190 || got.Wait > 7200 || got.Rule != http.CanonicalHeaderKey("tidegate-outcome") || got.Job != "runs until the API reports its result" {
		t.Errorf("%+v", got)
	}
}
