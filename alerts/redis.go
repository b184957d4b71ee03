package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/text"
)

// The alert that Redis cannot be reached cannot pass through Redis: each worker sends its own.
const (
	pingEvery = 5 * time.Second
	pingFor   = 2 * time.Second
	// lostAfter is how long Redis is away before that is notified.
	lostAfter = 30 * time.Second
	// lostEvery is how often at most a worker notifies of it.
	lostEvery = 10 * time.Minute
	// apart spreads the workers, so that all but one find the message of another.
	apart = 10 * time.Second
)

// redisWatch is a worker's view of whether Redis can be reached.
type redisWatch struct {
	a    *Alerts
	ping func(context.Context) error
	now  func() time.Time
	wait func(context.Context, time.Duration) // apart

	lostAt       time.Time // zero while Redis answers
	problem      string
	notified     bool                    // of this outage, by any worker
	roots        map[string]*notice.Root // where, by notifier
	lastNotified time.Time
}

// watchRedis notifies when Redis cannot be reached, and when it is back.
func (a *Alerts) watchRedis(ctx context.Context) {
	w := &redisWatch{
		a: a, now: time.Now, roots: map[string]*notice.Root{},
		// A Redis that refuses writes counts as away.
		ping: func(ctx context.Context) error { return a.rdb.Set(ctx, a.store.key("alive"), 1, time.Minute).Err() },
		wait: func(ctx context.Context, d time.Duration) { wait(ctx, rand.N(d), nil) }, //nolint:gosec // it spreads calls
	}
	for ; ctx.Err() == nil; wait(ctx, pingEvery, nil) {
		w.look(ctx)
	}
}

// look asks Redis once and notifies of changes.
func (w *redisWatch) look(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, pingFor)
	err := w.ping(call)
	cancel()
	if ctx.Err() != nil {
		return
	}
	now := w.now()
	switch {
	case err == nil && w.lostAt.IsZero():
	case err == nil:
		w.back(ctx, now)
	case w.lostAt.IsZero():
		w.lostAt, w.problem = now, redisProblem(err)
	case !w.notified && now.Sub(w.lostAt) >= lostAfter && now.Sub(w.lastNotified) >= lostEvery:
		w.lost(ctx, now)
	}
}

// addresses are where the client's Redis is.
func addresses(rdb redis.UniversalClient) []string {
	switch c := rdb.(type) {
	case *redis.Client:
		return []string{c.Options().Addr, strconv.Itoa(c.Options().DB)}
	case *redis.ClusterClient:
		return slices.Sorted(slices.Values(c.Options().Addrs))
	}
	return nil
}

// lost notifies that Redis is away, unless the notifier finds another worker's notice.
func (w *redisWatch) lost(ctx context.Context, now time.Time) {
	n := w.notice(single{Kind: redisLost, By: w.a.o.Worker, Since: w.lostAt, At: now, Problem: w.problem})
	waited := false
	w.notified = w.send(ctx, func(to notice.Notifier) error {
		root := &notice.Root{}
		w.roots[to.Name()] = root
		editor, edits := to.(notice.Editor)
		if !edits {
			return to.Send(ctx, n, root)
		}
		if !waited {
			w.wait(ctx, apart)
			waited = true
		}
		return editor.SendOnce(ctx, n, root, w.lostAt)
	})
	if w.notified {
		w.lastNotified = now
	}
}

// send sends to all notifiers, and reports whether all have it.
func (w *redisWatch) send(ctx context.Context, f func(notice.Notifier) error) bool {
	var errs []error
	for _, to := range w.a.o.Notifiers {
		errs = append(errs, f(to))
	}
	err := errors.Join(errs...)
	if err != nil {
		w.a.log.WarnContext(ctx, "the alert that Redis cannot be reached, or is back, could not be delivered", "problem", post.Words(err))
	}
	return err == nil
}

// notice makes a notice, whose id is the same in all workers that share a Redis and what they publish to.
func (w *redisWatch) notice(s single) *notice.Notice {
	n := s.compose(w.a.composer)
	sum := sha256.Sum256([]byte(strings.Join(slices.Concat(addresses(w.a.rdb), []string{w.a.o.Namespace}, w.a.o.Destinations), " ")))
	n.Dedup = "redis-" + hex.EncodeToString(sum[:6])
	n.ID = n.Dedup
	if s.Kind == redisBack {
		n.ID += "-back"
	}
	return n
}

// back notifies that Redis answers again, if the outage was notified. One of the workers
// with the notice does.
func (w *redisWatch) back(ctx context.Context, now time.Time) {
	a := w.a
	n := w.notice(single{Kind: redisBack, By: a.o.Worker, Since: w.lostAt, At: now})
	notified, roots := w.notified, w.roots
	w.lostAt, w.notified, w.roots = time.Time{}, false, map[string]*notice.Root{}
	if !notified {
		return
	}
	shared := false
	for _, root := range roots {
		shared = shared || root.Ref != ""
	}
	if mine, err := a.store.once(ctx, lostAfter, n.ID); err == nil && !mine && shared {
		return
	}
	w.send(ctx, func(to notice.Notifier) error {
		root := roots[to.Name()]
		if _, edits := to.(notice.Editor); edits && root.Ref == "" {
			return nil // another worker has the message to reply to
		}
		return to.Send(ctx, n, root)
	})
}

// redisProblem words the problem, without addresses that hold passwords.
func redisProblem(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer within " + pingFor.String()
	}
	if refused, ok := errors.AsType[redis.Error](err); ok {
		return "it refuses to write: " + text.Line(refused.Error(), 200)
	}
	return post.Words(err)
}
