package redisconn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// firstLogger lets the first Open decide where go-redis logs to.
var firstLogger sync.Once

// SetLibraryLogger sends what go-redis logs by itself (by default to stderr) to
// log, at debug level and at most 5 lines a second; nil drops it. go-redis has
// one logger for the whole process, so the last call counts. [Open] makes this
// call once, the first time.
func SetLibraryLogger(log *slog.Logger) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	redis.SetLogger(&libraryLogger{log: log})
}

// libraryLines is how many lines go-redis may write in a second: when Redis is
// gone it repeats itself for every connection.
const libraryLines = 5

type libraryLogger struct {
	log *slog.Logger

	mu      sync.Mutex
	second  time.Time // start of the current second
	lines   int       // in it
	dropped int       // since the last line
}

// Printf implements go-redis's interface of a logger.
func (l *libraryLogger) Printf(ctx context.Context, format string, args ...any) {
	if !l.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	dropped, ok := l.admit(time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("detail", fmt.Sprintf(format, args...))}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	l.log.LogAttrs(ctx, slog.LevelDebug, "go-redis", attrs...)
}

// admit reports whether a line may be written now, and how many were not since
// the last one.
func (l *libraryLogger) admit(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.lines = now, 0
	}
	if l.lines == libraryLines {
		l.dropped++
		return 0, false
	}
	l.lines++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}
