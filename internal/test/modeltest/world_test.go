package modeltest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/tidegate/tidegate/jobs"
)

// The destinations of the world, and the queues that its workers serve.
var (
	destinations = []string{"alpha", "beta"}
	queueNames   = []string{
		store.DefaultNamespace.Queue("alpha", store.High), store.DefaultNamespace.Queue("alpha", store.Default), store.DefaultNamespace.Queue("beta", store.Default),
	}
)

// world is a Redis, those who use it, and the book of what was observed of its jobs.
// It lives in a bubble of virtual time, where nothing takes any time but what waits
// for it.
type world struct {
	t      *rapid.T
	redis  *miniredis.Miniredis
	rdb    redis.UniversalClient
	client *jobs.Client
	book   *book

	processes []*process
	keepers   map[string]*process // of each queue: fetches nothing, sees to the rest
	started   int                 // processes so far
	named     int                 // ids given so far
	focus     string              // the job that the latest step was about
	steps     int
	readAt    time.Time // when all jobs were last read
}

var ctx = context.Background()

// newWorld must be called in the bubble, and what it returns be closed there.
func newWorld(t *rapid.T) *world {
	w := &world{t: t, redis: miniredis.NewMiniRedis(), book: newBook(t.Fatalf), keepers: map[string]*process{}}
	w.book.blocks = oneIn(t, 2, "failed jobs block")
	w.rdb = redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			c, err := w.redis.Dial()
			if err != nil {
				return nil, err
			}
			return buffered(c), nil
		},
		MaxRetries: -1, Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	var err error
	w.client, err = jobs.NewClient(w.rdb, jobs.WithDestinations(destinations...), jobs.WithLogger(slog.New(slog.DiscardHandler)))
	w.must(err)
	for _, q := range queueNames {
		w.keepers[q] = w.newProcess(q, 1)
	}
	return w
}

// close ends all that was started.
func (w *world) close() {
	for _, p := range w.processes {
		p.end()
	}
	for _, p := range w.keepers {
		p.end()
	}
	_ = w.rdb.Close()
	w.redis.Close()
	sleep(time.Second) // whatever sleeps ends: without this one time stands still
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v", err)
	}
}

// settleDown waits until nothing is under way.
func (w *world) settleDown() { synctest.Wait() }

// pass lets time pass. Processes that live keep their leases up.
func (w *world) pass(d time.Duration) {
	sleep(d)
	for _, p := range w.processes {
		p.heartbeat()
	}
	w.settleDown()
}

// sleep lets virtual time pass, in which everybody else gets on.
func sleep(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // there is no other way to let virtual time pass

// living returns the processes that have not died.
func (w *world) living() []*process {
	return slices.DeleteFunc(slices.Clone(w.processes), func(p *process) bool { return p.dead })
}

// errLost is what a process gets in place of a reply that was lost.
var errLost = io.ErrUnexpectedEOF

// wire is a process's connection to Redis. It can lose a reply: Redis has done what
// it was asked, and the process does not know.
type wire struct {
	redis.UniversalClient
	lose atomic.Value // string: the first key of the script, "" for none
}

func (w *wire) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return w.answer(ctx, keys, w.UniversalClient.EvalSha(ctx, sha, keys, args...))
}

func (w *wire) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return w.answer(ctx, keys, w.UniversalClient.Eval(ctx, script, keys, args...))
}

func (w *wire) answer(ctx context.Context, keys []string, cmd *redis.Cmd) *redis.Cmd {
	if _, refused := errors.AsType[redis.Error](cmd.Err()); !refused && w.lose.CompareAndSwap(keys[0], "") {
		lost := redis.NewCmd(ctx)
		lost.SetErr(errLost)
		return lost
	}
	return cmd
}
