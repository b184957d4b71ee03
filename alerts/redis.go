package alerts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/internal/post"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/base/text"
)

// The alert that Redis cannot be reached cannot pass through Redis: each worker sends its own.
const (
	pingEvery = 5 * time.Second
	pingFor   = 2 * time.Second
	// lostAfter is how long Redis is away before the first worker notifies people. The deputy does so after deputyAfter:
	// the first worker may have died with Redis, or may still reach it.
	lostAfter   = 30 * time.Second
	deputyAfter = 10 * time.Minute
	// lostEvery is how often at most a worker notifies of it.
	lostEvery = 10 * time.Minute
	// dutyLease is how long a worker keeps its duty without a heartbeat.
	dutyLease = time.Minute
)

// duty says whether a worker notifies people through services other than pagers, which would show a message from each
// worker. A pager makes one alarm of the notices from all workers.
type duty int

const (
	dutyDeputy duty = iota // the default, too: where Redis has never answered, no worker has a lease
	dutyFirst
	dutyNone
)

// redisWatch is a worker's view of whether Redis can be reached.
type redisWatch struct {
	a    *Alerts
	ping func(context.Context) (duty, error)
	now  func() time.Time

	duty     duty      // of this worker at the last response from Redis
	lostAt   time.Time // zero while Redis answers
	problem  string
	notified map[string]*notice.Root // of this outage: where, by notifier
	next     map[string]time.Time    // when a notifier may be notified again
}

func newRedisWatch(a *Alerts) *redisWatch {
	return &redisWatch{a: a, now: time.Now, notified: map[string]*notice.Root{}, next: map[string]time.Time{}}
}

// watchRedis notifies when Redis cannot be reached, and when it is back.
func (a *Alerts) watchRedis(ctx context.Context) {
	w, me := newRedisWatch(a), rand.Text()
	w.ping = func(ctx context.Context) (duty, error) { return a.ping(ctx, me) }
	for ; ctx.Err() == nil; wait(ctx, pingEvery, nil) {
		w.look(ctx)
	}
}

// ping returns the duty of this worker, me: one worker of the fleet is the first, another one the deputy. Errors: Redis is
// away, or refuses writes.
func (a *Alerts) ping(ctx context.Context, me string) (duty, error) {
	if err := a.rdb.Set(ctx, a.store.key("alive"), 1, dutyLease).Err(); err != nil {
		return dutyNone, err
	}
	for _, d := range []duty{dutyFirst, dutyDeputy} {
		held, err := lease.Acquire(ctx, a.rdb, a.store.key("lock", "redis", strconv.Itoa(int(d))), me, dutyLease)
		if err != nil || held {
			return d, err
		}
	}
	return dutyNone, nil
}

// look asks Redis once and notifies of changes.
func (w *redisWatch) look(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, pingFor)
	d, err := w.ping(call)
	cancel()
	if ctx.Err() != nil {
		return
	}
	now := w.now()
	switch {
	case err == nil:
		if w.duty = d; !w.lostAt.IsZero() {
			w.back(ctx, now)
		}
	case w.lostAt.IsZero():
		w.lostAt, w.problem = now, redisProblem(err)
	default:
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

// lost notifies that Redis is away. All workers notify pagers, which make one alarm of that.
func (w *redisWatch) lost(ctx context.Context, now time.Time) {
	n := w.notice(single{Kind: redisLost, By: w.a.o.Worker, Since: w.lostAt, At: now, Problem: w.problem})
	for _, to := range w.a.o.Notifiers {
		after, name := lostAfter, to.Name()
		switch {
		case to.Pager() || w.duty == dutyFirst:
		case w.duty == dutyDeputy:
			after = deputyAfter
		default:
			continue
		}
		if w.notified[name] != nil || now.Sub(w.lostAt) < after || now.Before(w.next[name]) {
			continue
		}
		root := &notice.Root{}
		w.next[name] = now.Add(lostAfter) // it may have arrived all the same
		if w.send(ctx, to, n, root) {
			w.notified[name], w.next[name] = root, now.Add(lostEvery)
		}
	}
}

// send sends a notice, and reports whether it has arrived.
func (w *redisWatch) send(ctx context.Context, to notice.Notifier, n *notice.Notice, root *notice.Root) bool {
	err := to.Send(ctx, n, root)
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

// back sends that Redis answers again to each notifier that got the outage from this worker.
func (w *redisWatch) back(ctx context.Context, now time.Time) {
	n := w.notice(single{Kind: redisBack, By: w.a.o.Worker, Since: w.lostAt, At: now})
	for _, to := range w.a.o.Notifiers {
		if root := w.notified[to.Name()]; root != nil {
			w.send(ctx, to, n, root)
		}
	}
	w.lostAt = time.Time{}
	clear(w.notified)
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
