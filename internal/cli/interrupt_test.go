package cli

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A file that is cut short by an interrupt must not look like one that has ended.
func TestInterruptedFileIsNotAtItsEnd(t *testing.T) {
	t.Parallel()
	line := `{"destination":"d","payload":{}}` + "\n"
	for _, n := range []int{100000, 1} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		b := &bulk{maxPayload: 1000}
		if err := b.parse(ctx, strings.NewReader(strings.Repeat(line, n)), make(chan *chunk)); !errors.Is(err, errInterrupted) {
			t.Errorf("%d lines: error %v, want errInterrupted", n, err)
		}
	}
}
