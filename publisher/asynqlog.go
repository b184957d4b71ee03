package publisher

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/queue/asynqx"
)

// asynqLogger writes asynq's log. During an outage of Redis asynq repeats its warnings with each
// heartbeat, while Tidegate logs the outage once; so warnings of a kind are logged at most once
// per asynqLogEvery, the rest at debug level.
type asynqLogger struct {
	log   *slog.Logger
	limit outage.Limiter
}

var _ asynq.Logger = (*asynqLogger)(nil)

const (
	asynqLogEvery = 30 * time.Second
	asynqLogKind  = 24 // length of the prefix of a message that is its kind
)

func (a *asynqLogger) Debug(args ...any) { a.write(slog.LevelDebug, args) }
func (a *asynqLogger) Info(args ...any)  { a.write(slog.LevelDebug, args) }
func (a *asynqLogger) Warn(args ...any)  { a.sometimes(args) }
func (a *asynqLogger) Error(args ...any) { a.sometimes(args) }

// Fatal is part of the interface. Only asynq's scheduler calls it, which Tidegate does not use.
func (a *asynqLogger) Fatal(args ...any) { a.write(slog.LevelError, args) }

func (a *asynqLogger) sometimes(args []any) {
	whole := fmt.Sprint(args...)
	if strings.HasPrefix(whole, asynqx.NotSubscribed) {
		return // every 5 s
	}
	kind := whole
	if len(kind) > asynqLogKind {
		kind = kind[:asynqLogKind]
	}
	level := slog.LevelDebug
	// Tidegate itself logs outages of Redis.
	if !strings.Contains(whole, "redis") && a.limit.Allow(kind) {
		level = slog.LevelWarn
	}
	a.write(level, args)
}

func (a *asynqLogger) write(level slog.Level, args []any) {
	ctx := context.Background()
	if a.log.Enabled(ctx, level) {
		a.log.Log(ctx, level, "asynq", "message", fmt.Sprint(args...))
	}
}
