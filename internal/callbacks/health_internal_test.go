package callbacks

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// The line about a receiver says what becomes of its callbacks.
func TestLineOfAFailingReceiver(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"they wait and are tried again":   &pauseError{text: "the receiver answered 503 Service Unavailable"},
		"they fail, and can be retried":   jobs.Discard(errors.New("the receiver answered 410 Gone")),
		"no callbacks; they wait and are": errors.New("the receiver answered 400 Bad Request"),
	} {
		var out bytes.Buffer
		var s health
		for range failures {
			s.note(t.Context(), slog.New(slog.NewTextHandler(&out, nil)), "shop", err, time.Now())
		}
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) {
			t.Errorf("%v: %s, want one line with %q", err, got, want)
		}
	}
}
