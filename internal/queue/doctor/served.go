package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
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
	for _, d := range store.Disagreements(live) {
		queue := ""
		if d.Destination != "" {
			queue = p.o.Namespace.Queue(d.Destination, store.Default)
		}
		p.found.addDetailed(KindDiffer, queue, d.Problem, len(d.Workers))
	}
	overrides, err := p.o.Namespace.Overrides(ctx, p.rdb)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		o, until, queue := overrides[name], "until it is unset", ""
		if _, limit, named := strings.Cut(name, store.LimitField("")); named {
			name = limit
		} else {
			queue = p.o.Namespace.Queue(name, store.Default)
		}
		if o.Until != nil {
			until = "until " + o.Until.UTC().Format(time.RFC3339)
		}
		p.found.addDetailed(KindOverride, queue,
			fmt.Sprintf("%[1]s set the limit of %[4]s to %[2]s %[3]s; tidegate limits unset %[4]s", o.By, o.Rate, until, name), 1)
	}
	stats, err := store.StatsAll(ctx, p.rdb, p.queues, time.Time{})
	if err != nil {
		return err
	}
	for i, queue := range p.queues {
		n := stats[i].Backlog() - stats[i].States[store.StatePaused]
		if n == 0 {
			continue
		}
		destination, _, _ := store.ParseQueue(queue)
		if pause := stats[i].Pause; pause != nil {
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
