package redisconn

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLibraryLogger(t *testing.T) {
	t.Parallel()
	var l logs
	level := new(slog.LevelVar)
	log := slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	library := &libraryLogger{log: log}
	library.Printf(t.Context(), "not written at level %s", "info")
	level.Set(slog.LevelDebug)
	library.Printf(t.Context(), "pool: %d", 7)
	if diff := cmp.Diff([]string{"level=DEBUG msg=go-redis detail=\"pool: 7\"\n"}, l.lines()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLibraryLoggerIsLimited(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	library := &libraryLogger{}
	steps := []struct {
		at      time.Duration
		dropped int
		ok      bool
	}{
		{0, 0, true},
		{1, 0, true},
		{2, 0, true},
		{3, 0, true},
		{4, 0, true},
		{5, 0, false},
		{time.Second - 1, 0, false},
		{time.Second, 2, true},
		{time.Second + 1, 0, true},
		{time.Hour, 0, true},
	}
	for i, step := range steps {
		if dropped, ok := library.admit(start.Add(step.at)); dropped != step.dropped || ok != step.ok {
			t.Errorf("step %d: %d, %t, want %d, %t", i, dropped, ok, step.dropped, step.ok)
		}
	}
}
