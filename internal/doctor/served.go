package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// served tells of queues with jobs that nobody will run: no worker serves them, or
// an operator has paused them.
func (p *pass) served(ctx context.Context) error {
	seen, err := p.rdb.HGetAll(ctx, record.DestinationsKey).Result()
	if err != nil {
		return fmt.Errorf("read destinations: %w", err)
	}
	live, err := record.ReadLiveWorkers(ctx, p.rdb)
	if err != nil {
		return err
	}
	served := map[string]bool{}
	for _, w := range live {
		for _, d := range w.Destinations {
			served[d] = true
		}
	}
	for _, d := range record.Disagreements(live) {
		queue := ""
		if d.Destination != "" {
			queue = record.Queue(d.Destination, record.Default)
		}
		p.found.say(KindDiffer, queue, d.Problem, len(d.Workers))
	}
	for _, queue := range p.queues {
		n, pause, err := p.backlog(ctx, queue)
		if err != nil {
			return fmt.Errorf("count jobs of %s: %w", queue, err)
		}
		if n == 0 {
			continue
		}
		destination, _, _ := record.ParseQueue(queue)
		if pause != nil {
			p.found.say(KindPaused, queue, fmt.Sprintf(
				"jobs wait: %s is %s; tidegate queue resume %s", destination, record.PausedBy(pause.By, pause.Reason), destination), n)
		}
		if served[destination] {
			continue
		}
		ms, err := strconv.ParseInt(seen[destination], 10, 64)
		switch last := time.UnixMilli(ms); {
		case err != nil:
			p.found.say(KindNoWorker, queue, "jobs wait, and no worker has ever served "+destination+"; start one", n)
		default:
			p.found.say(KindNoWorker, queue, fmt.Sprintf("jobs wait, and no worker has served %s since %s; start one",
				destination, last.UTC().Format(time.RFC3339)), n)
		}
	}
	return nil
}

// backlog counts the jobs of a queue that need a worker, and returns its pause, nil
// without one.
func (p *pass) backlog(ctx context.Context, queue string) (int, *record.Pause, error) {
	var pending, active *redis.IntCmd
	var ghosts, paused *redis.StringCmd
	var timed []*redis.IntCmd
	if _, err := p.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pending, active = pipe.LLen(ctx, record.Pending(queue)), pipe.LLen(ctx, record.Active(queue))
		timed = []*redis.IntCmd{
			pipe.ZCard(ctx, record.Scheduled(queue)), pipe.ZCard(ctx, record.Retry(queue)),
			pipe.ZCard(ctx, record.Parked(queue, record.StateWaiting)), pipe.ZCard(ctx, record.Held(queue)),
		}
		paused = pipe.Get(ctx, record.Paused(queue))
		ghosts = pipe.Get(ctx, record.Ghosts(queue))
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return 0, nil, err
	}
	dropped, err := ghosts.Int64()
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
	pause := record.ParsePause(paused.Val())
	return int(n), &pause, nil
}
