package asynqx

import (
	"context"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// Bounds of fetching held jobs.
const (
	// heldAtOnce is how many jobs of one key are fetched together.
	heldAtOnce = 10
	// askedAtOnce is how often one fetch looks for a key that is admitted, ten of them
	// each time, before the pending jobs of other queues have their turn.
	askedAtOnce = 10
	// keysAtOnce bounds one call about keys that have opened.
	keysAtOnce = 500
	// allAtMost bounds the calls about all keys, each of which is for a thousand.
	allAtMost = 100
)

// dueKeys is what is known of the held keys of a queue since the last look.
type dueKeys struct {
	keys []string  // those that may be asked for, the next one first
	next time.Time // when the first of the others may be, by the local clock; zero: none
	turn bool      // pending jobs were served last
}

// noteDue takes what a script says of the held keys of a queue: 0 for none, or the ms
// until the next one and those that are due.
func (c *Client) noteDue(queue string, reply any) {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	due, known := c.due[queue]
	values, _ := reply.([]any)
	if len(values) == 0 {
		if known {
			delete(c.due, queue)
		}
		return
	}
	due.keys, due.next = nil, time.Time{}
	if text, _ := values[0].(string); text != "" {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			due.next = time.Now().Add(store.Duration(ms))
		}
	}
	for _, v := range values[1:] {
		if key, ok := v.(string); ok {
			due.keys = append(due.keys, key)
		}
	}
	if len(due.keys) > 0 {
		delete(c.empty, queue) // of pending jobs, which says nothing of these
	}
	c.due[queue] = due
}

// noteLater notes that a key is to be asked for at an instant.
func (c *Client) noteLater(queue string, at time.Time) {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	due := c.due[queue]
	if due.next.IsZero() || at.Before(due.next) {
		due.next = at
	}
	c.due[queue] = due
}

// nextDue is when a held key may be asked for next.
func (c *Client) nextDue() (at time.Time, ok bool) {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	for _, due := range c.due {
		switch {
		case len(due.keys) > 0:
			return time.Time{}, true
		case !due.next.IsZero() && (!ok || due.next.Before(at)):
			at, ok = due.next, true
		}
	}
	return at, ok
}

// served notes whose turn it is after a fetch that found jobs.
func (c *Client) served(f fetch) {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	if due, known := c.due[f.queue]; known {
		due.turn = f.key == ""
		c.due[f.queue] = due
	}
}

func (c *Client) turnOfHeld(queue string) bool {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	return c.due[queue].turn
}

// popDue takes the keys of a queue that may be asked for.
func (c *Client) popDue(queue string) []string {
	c.bufferMu.Lock()
	defer c.bufferMu.Unlock()
	due, known := c.due[queue]
	keys := due.keys
	if known {
		due.keys = nil
		c.due[queue] = due
	}
	return keys
}

// takeHeld fetches held jobs of the first key that is due and that the gate admits.
func (c *Client) takeHeld(queue string, want int, l *leave) (int, error) {
	for range askedAtOnce {
		keys := c.popDue(queue)
		if len(keys) == 0 || c.stopped() {
			break
		}
		if n, err := c.takeOfKeys(queue, keys, want, l); n > 0 || err != nil || l.spent {
			return n, err
		}
	}
	return 0, nil
}

// stopped reports whether fetching has come to its end.
func (c *Client) stopped() bool { return c.ctx.Err() != nil }

func (c *Client) takeOfKeys(queue string, keys []string, want int, l *leave) (int, error) {
	opened := c.opening.count()
	var later []any // key, ms
	putOff := func() error {
		if len(later) == 0 {
			return nil
		}
		ctx, cancel := c.bounded()
		defer cancel()
		_, err := c.askKeys(ctx, queue, append([]any{""}, later...)...)
		if c.opening.count() != opened {
			for i := 0; i < len(later); i += 2 {
				c.opening.add(later[i].(string)) //nolint:forcetypeassert // it was put there as one
			}
		}
		later = nil
		return err
	}
	for _, key := range keys {
		ctx, cancel := c.bounded()
		permit, at, ok := c.gate.Admit(ctx, key, l.Permit)
		cancel()
		if !ok {
			later = append(later, key, store.Millis(time.Until(askAgainAt(at))))
			continue
		}
		n, err := 0, putOff()
		if err == nil {
			n, err = c.takeOfKey(queue, key, want, permit)
		}
		if n == 0 && permit != nil {
			c.gate.Unused(c.ctx, Grant{Max: 1, Permit: permit})
			l.spent = l.Permit != nil
		}
		if n > 0 || err != nil || l.spent {
			return n, err
		}
	}
	return 0, putOff()
}

// takeOfKey fetches held jobs of a key: one if a permit goes with it.
func (c *Client) takeOfKey(queue, key string, want int, permit any) (int, error) {
	want = min(want, heldAtOnce)
	if permit != nil {
		want = 1
	}
	return c.takeAny(fetch{queue: queue, key: key, permit: permit}, want)
}

// KeyOpened says that a key lets jobs through again, so that its held jobs need not
// wait until it was to be asked for. It returns at once; the fetching does it.
func (c *Client) KeyOpened(key string) {
	c.opening.tell(key)
	c.Wake()
}

// openKeys makes keys due that have opened: all of them when the client has just been
// started, because they may have opened while nobody was there to hear of it.
func (c *Client) openKeys() {
	keys, all := c.opening.take()
	if len(keys) == 0 && !all {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, redisTimeout)
	defer cancel()
	for _, queue := range c.o.Queues {
		if err := c.openIn(ctx, queue, keys, all); err != nil {
			c.opening.again(keys, all)
			c.health.failed(err)
			return
		}
	}
}

func (c *Client) openIn(ctx context.Context, queue string, keys []string, all bool) error {
	// Other workers put keys off meanwhile, so that there might always be more.
	for n := 0; len(keys) > 0 || all && n < allAtMost; n++ {
		some := keys[:min(len(keys), keysAtOnce)]
		keys = keys[len(some):]
		args := []any{flag(all)}
		for _, key := range some {
			args = append(args, key, 0)
		}
		more, err := c.askKeys(ctx, queue, args...)
		if err != nil {
			return err
		}
		all = all && more
	}
	return nil
}
