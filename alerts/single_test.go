package alerts

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/breaker"
)

// lookFor has the workers look for what no event reports.
func (b *harness) lookFor() []string {
	b.t.Helper()
	for _, a := range b.workers {
		if err := errors.Join(a.check(b.t.Context()), a.flush(b.t.Context())); err != nil {
			b.t.Fatal(err)
		}
	}
	b.settle()
	return b.texts()
}

// The last refusals are the reason that an alert gives.
func TestAnswersAreTheReason(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	for i := range 5 {
		b.workers[0].noteRefusal(refusal{At: b.now(), Destination: "shop", Kind: limited, Job: fmt.Sprint("job-", i), Status: 429, Body: fmt.Sprint("too many, ", i)})
	}
	if err := b.workers[0].flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.call("shop", breaker.RateLimited(0))
	b.settle()
	blocks := string(b.slack.Messages()[0].Blocks)
	for i := range 5 {
		if has := strings.Contains(blocks, fmt.Sprint("too many, ", i)); has != (i >= 2) {
			t.Errorf("answer %d is shown: %v, want the last three", i, has)
		}
	}
}
