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
)

// What is told of a Redis that cannot be reached cannot pass through Redis: each worker
// tells it by itself.
const (
	pingEvery = 5 * time.Second
	pingFor   = 2 * time.Second
	// lostAfter is how long Redis is away before that is told.
	lostAfter = 30 * time.Second
	// lostEvery is how often at most a worker tells of it.
	lostEvery = 10 * time.Minute
	// apart spreads the workers, so that all but one find the message of another.
	apart = 10 * time.Second
)

// redisWatch is what a worker knows of the reachability of Redis.
type redisWatch struct {
	a    *Alerts
	ping func(context.Context) error
	now  func() time.Time
	wait func(context.Context, time.Duration) // apart

	lostAt   time.Time // zero while Redis answers
	problem  string
	told     bool  // of this outage, by whoever
	at       place // where that was
	lastTold time.Time
}

// watchRedis tells when Redis cannot be reached, and when it is back.
func (a *Alerts) watchRedis(ctx context.Context) {
	w := &redisWatch{
		a: a, now: time.Now,
		// A Redis that takes nothing any more is as bad as none.
		ping: func(ctx context.Context) error { return a.rdb.Set(ctx, key("alive"), 1, time.Minute).Err() },
		wait: func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(d)): //nolint:gosec // it spreads calls
			}
		},
	}
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look asks Redis once and tells what there is to tell.
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
		w.lostAt, w.problem = now, redisInWords(err)
	case !w.told && now.Sub(w.lostAt) >= lostAfter && now.Sub(w.lastTold) >= lostEvery:
		w.lost(ctx, now)
	}
}

// id is the same in all workers that share a Redis and what they publish to.
func (w *redisWatch) id() string {
	sum := sha256.Sum256([]byte(strings.Join(append(addresses(w.a.rdb), w.a.o.Destinations...), " ")))
	return "redis-" + hex.EncodeToString(sum[:6])
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

// lost tells that Redis is away, unless another worker has.
func (w *redisWatch) lost(ctx context.Context, now time.Time) {
	a := w.a
	o := outage{Worker: a.o.Worker, Since: w.lostAt, Problem: w.problem}
	m := a.write.redisLost(o)
	var errs []error
	if a.pager != nil {
		errs = append(errs, a.pager.trigger(ctx, w.id(), pagerPayload{
			Summary: cutSummary(plain(m.Text)), Source: "tidegate", Severity: severityCritical, Group: "tidegate", Class: "Redis unreachable",
		}, w.lostAt, ""))
	}
	errs = append(errs, w.lostInSlack(ctx, m))
	if err := errors.Join(errs...); err != nil {
		a.log.WarnContext(ctx, "nobody could be told that Redis cannot be reached; it is tried again", "problem", inWords(err))
		return
	}
	w.told, w.lastTold = true, now
}

func (w *redisWatch) lostInSlack(ctx context.Context, m message) error {
	a := w.a
	switch {
	case a.bot != nil:
		w.wait(ctx, apart)
		at, ok, err := a.bot.find(ctx, w.id(), place{}, w.lostAt)
		if err != nil {
			return err
		}
		if ok {
			w.at = at
			return nil
		}
		if w.at, err = a.bot.send(ctx, post{message: m, ID: w.id()}); err != nil {
			return err
		}
		// If another one has told at the same time, the first message stays.
		if at, ok, err := a.bot.find(ctx, w.id(), place{}, w.lostAt); err == nil && ok && at.TS < w.at.TS {
			if err := a.bot.remove(ctx, w.at); err == nil {
				w.at = at
			}
		}
		return nil
	case a.hook != nil:
		return a.hook.send(ctx, m)
	}
	return nil
}

// back tells that Redis answers again, if people were told that it did not. Of the
// workers who know that, one does.
func (w *redisWatch) back(ctx context.Context, now time.Time) {
	a := w.a
	o := outage{Worker: a.o.Worker, Since: w.lostAt, Back: now, Problem: w.problem}
	told, at := w.told, w.at
	w.lostAt, w.told, w.at = time.Time{}, false, place{}
	if !told {
		return
	}
	m := a.write.redisBack(o)
	if mine, err := a.store.once(ctx, lostAfter, "redis-back", w.id()); err == nil && !mine && at.TS != "" {
		return
	}
	var errs []error
	if a.pager != nil {
		errs = append(errs, a.pager.resolve(ctx, w.id()))
	}
	switch {
	case a.bot != nil && at.TS != "":
		_, err := a.bot.send(ctx, post{message: m, ID: w.id() + "-back", Thread: at, Broadcast: true})
		errs = append(errs, err)
	case a.bot == nil && a.hook != nil:
		errs = append(errs, a.hook.send(ctx, m))
	}
	if err := errors.Join(errs...); err != nil {
		a.log.WarnContext(ctx, "nobody could be told that Redis is back", "problem", inWords(err))
	}
}

// redisInWords says what is wrong with Redis, without addresses that hold passwords.
func redisInWords(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "it does not answer within " + pingFor.String()
	}
	if refused, ok := errors.AsType[redis.Error](err); ok {
		return "it refuses to write: " + clean(refused.Error(), 200)
	}
	return connectionInWords(err)
}
