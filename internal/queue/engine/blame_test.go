package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// fleet plays workers that die one after the other.
type fleet struct {
	*testQueue
	recoverer *Engine
	poison    map[string]bool // jobs that kill their worker when they start
	random    *rand.Rand
}

// slotsOfVictim is how many jobs a worker has in flight.
const slotsOfVictim = 10

// allDue makes all jobs that wait for an instant pending.
func (f *fleet) allDue() {
	ctx := context.Background()
	for {
		ids, err := f.rdb.ZRange(ctx, store.DueKey(f.queue), 0, -1).Result()
		f.must(err)
		if len(ids) == 0 {
			return
		}
		for _, id := range ids {
			f.must(f.rdb.ZAdd(ctx, store.DueKey(f.queue), zAt(id, 1)).Err())
		}
		_, err = f.recoverer.beat(ctx, f.queue)
		f.must(err)
	}
}

// live plays one worker, which runs what a fetch returns: it dies of a poison job that starts, or, if it
// is killed, when each job has ended with a chance of one half. It reports whether it had jobs.
func (f *fleet) live(killed bool) bool {
	ctx := context.Background()
	w := New(f.rdb, Options{Queues: []string{f.queue}, Concurrency: slotsOfVictim, Worker: "victim:1", Retention: time.Hour})
	defer w.cancel()
	f.allDue()
	_, passed, err := w.takeOnce(fetch{queue: f.queue}, slotsOfVictim)
	f.must(err)
	died := killed
	for _, d := range w.buffer {
		w.Begin(d)
		died = died || f.poison[d.ID]
	}
	for _, d := range w.buffer {
		if !died || killed && !f.poison[d.ID] && f.random.IntN(2) == 0 {
			asDone(w, f.queue, d.ID)
		}
	}
	lost, err := f.rdb.LRange(ctx, store.ActiveKey(f.queue), 0, -1).Result()
	f.must(err)
	for _, id := range lost {
		f.lease(id, time.Unix(1, 0))
		f.asLost(f.recoverer, id)
	}
	return len(w.buffer)+passed.dropped > 0
}

// A job fails as poison if its worker dies each time that it runs, and never because workers
// die of something else.
func TestBlame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		innocent int
		poison   []string
		kills    int // from outside, one after each worker that a poison job has killed
		crashes  int // of a poison job when it fails; at most, if there are kills
	}{
		"a poison job among others":      {innocent: 30, poison: []string{"p1"}, crashes: 3},
		"two poison jobs":                {innocent: 30, poison: []string{"p1", "p2"}, crashes: 3},
		"workers are killed":             {innocent: 200, kills: 40},
		"a poison job beside a bad node": {innocent: 200, poison: []string{"p1"}, kills: 40, crashes: 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Slow(t)
			f := &fleet{testQueue: realQueue(t), poison: map[string]bool{}, random: rand.New(rand.NewPCG(1, 2))}
			f.recoverer = f.client()
			f.recoverer.o.MaxCrashes = 3
			f.pending(numbered(5)...)
			for _, id := range c.poison {
				f.poison[id] = true
				f.pending(id)
			}
			for i := 5; i < c.innocent; i++ {
				f.pending(fmt.Sprintf("j%04d", i))
			}
			for kills := c.kills; f.live(false) || kills > 0; kills-- {
				if kills > 0 {
					f.live(true)
				}
			}
			for id, state := range f.look() {
				if f.poison[id] {
					n, _ := strconv.Atoi(f.fields(id)[store.FieldCrashes])
					if state != "failed" || n > c.crashes || n < 3 || c.kills == 0 && n != c.crashes {
						t.Errorf("the poison job %s is %s after %d crashes, want failed after %d", id, state, n, c.crashes)
					}
				} else if id[0] == 'j' && state != "completed" {
					t.Errorf("job %s is %s: %v", id, state, f.fields(id))
				}
			}
		})
	}
}
