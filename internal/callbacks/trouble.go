package callbacks

import (
	"context"
	"log/slog"
	"sync"
)

// trouble logs when relays begin to fail, and when none does any more.
type trouble struct {
	log *slog.Logger
	mu  sync.Mutex
	bad map[*relay]bool
}

func (t *trouble) note(ctx context.Context, r *relay, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && len(t.bad) == 0:
		t.log.WarnContext(ctx, "callbacks wait: what has ended cannot be read or told; it is tried again", "destination", r.destination, "error", err)
		t.bad[r] = true
	case err != nil:
		t.bad[r] = true
	case t.bad[r]:
		delete(t.bad, r)
		if len(t.bad) == 0 {
			t.log.InfoContext(ctx, "callbacks go on")
		}
	}
}
