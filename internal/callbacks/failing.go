package callbacks

import (
	"context"
	"log/slog"
	"sync"
)

// failingRelays logs when relays begin to fail, and when none does any more.
type failingRelays struct {
	log    *slog.Logger
	mu     sync.Mutex
	relays map[*relay]bool
}

func (t *failingRelays) note(ctx context.Context, r *relay, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && len(t.relays) == 0:
		t.log.WarnContext(ctx, "callbacks wait: events cannot be read or callbacks cannot be enqueued; it is tried again", "destination", r.destination, "error", err)
		t.relays[r] = true
	case err != nil:
		t.relays[r] = true
	case t.relays[r]:
		delete(t.relays, r)
		if len(t.relays) == 0 {
			t.log.InfoContext(ctx, "callbacks go on")
		}
	}
}
