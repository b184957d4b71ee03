package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/explain/words"
	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"
)

// served reports queues whose jobs do not run: no worker serves them, or an operator has
// paused them.
func (p *pass) served(ctx context.Context) error {
	seen, err := p.rdb.HGetAll(ctx, p.o.Namespace.DestinationsKey()).Result()
	if err != nil {
		return fmt.Errorf("read destinations: %w", err)
	}
	live, err := p.o.Namespace.ReadLiveWorkers(ctx, p.rdb)
	if err != nil {
		return err
	}
	served := map[string]bool{}
	for _, w := range live {
		for _, d := range w.Destinations {
			served[d] = true
		}
	}
	for destination := range served {
		if r, ok := store.LimitedRoute(live, destination); ok {
			p.found.addDetailed(KindRoute, p.o.Namespace.Queue(destination, store.Default), words.LimitedRoute(r.Route, r.KeyBy, r.Refused, r.Accepted), r.Refused)
		}
	}
	for _, d := range store.Disagreements(live) {
		queue := ""
		if d.Destination != "" {
			queue = p.o.Namespace.Queue(d.Destination, store.Default)
		}
		p.found.addDetailed(KindDiffer, queue, d.Problem, len(d.Workers))
	}
	for _, queue := range p.queues {
		n, pause, err := p.backlog(ctx, queue)
		if err != nil {
			return fmt.Errorf("count jobs of %s: %w", queue, err)
		}
		if n == 0 {
			continue
		}
		destination, _, _ := store.ParseQueue(queue)
		if pause != nil {
			p.found.addDetailed(KindPaused, queue, fmt.Sprintf(
				"jobs wait: %s is %s; tidegate queue resume %s", destination, words.PausedBy(pause.By, pause.Reason), destination), n)
		}
		if served[destination] {
			if u, all := store.NotReached(live, destination); all {
				p.found.addDetailed(KindUnreached, queue, fmt.Sprintf("jobs wait, and no worker reaches %s since %s: %s; they try again by themselves",
					destination, time.UnixMilli(u.Since).UTC().Format(time.RFC3339), u.Problem), n)
			}
			continue
		}
		ms, err := strconv.ParseInt(seen[destination], 10, 64)
		switch last := time.UnixMilli(ms); {
		case err != nil:
			p.found.addDetailed(KindNoWorker, queue, "jobs wait, and no worker has ever served "+destination+"; start one", n)
		default:
			p.found.addDetailed(KindNoWorker, queue, fmt.Sprintf("jobs wait, and no worker has served %s since %s; start one",
				destination, last.UTC().Format(time.RFC3339)), n)
		}
	}
	return nil
}

// backlog counts the jobs of a queue that need a worker, and returns its pause, nil
// without one.
func (p *pass) backlog(ctx context.Context, queue string) (int, *store.PauseInfo, error) {
	var pending, active *redis.IntCmd
	var tombstones, paused *redis.StringCmd
	var timed []*redis.IntCmd
	if _, err := redispipe.Run(ctx, p.rdb, func(pipe redis.Pipeliner) error {
		pending, active = pipe.LLen(ctx, store.PendingKey(queue)), pipe.LLen(ctx, store.ActiveKey(queue))
		timed = []*redis.IntCmd{
			pipe.ZCard(ctx, store.ScheduledKey(queue)), pipe.ZCard(ctx, store.RetryKey(queue)),
			pipe.ZCard(ctx, store.ParkedKey(queue, store.StateWaiting)), pipe.ZCard(ctx, store.HeldKey(queue)),
		}
		paused = pipe.Get(ctx, store.PausedKey(queue))
		tombstones = pipe.Get(ctx, store.TombstonesKey(queue))
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return 0, nil, err
	}
	dropped, err := tombstones.Int64()
	if err != nil {
		dropped = 0
	}
	n := max(0, pending.Val()-dropped) + active.Val()
	for _, cmd := range timed {
		n += cmd.Val()
	}
	if errors.Is(paused.Err(), redis.Nil) {
		return int(n), nil, nil
	}
	pause := store.ParsePause(paused.Val())
	return int(n), &pause, nil
}
