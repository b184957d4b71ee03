package asynqx

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/store"
)

// passedOver is what a fetch met and did not bring.
type passedOver struct {
	dropped int // thrown away, ended or put off
	held    int // put among the held jobs of their keys
}

// receive takes the jobs of a reply in hand, and holds those whose keys let nothing
// through. An error tells of jobs that could not be taken.
func (c *Client) receive(f fetch, reply []any) (ds []*Delivery, passed passedOver, err error) {
	if len(reply) < 4 {
		return nil, passed, fmt.Errorf("asynqx: dequeue %s: a reply of %d values", f.queue, len(reply))
	}
	dropped, _ := reply[0].(int64)
	held, _ := reply[1].(int64)
	passed = passedOver{dropped: int(dropped), held: int(held)}
	c.noteDue(f.queue, reply[2])
	if expired, _ := reply[3].(int64); expired > 0 && c.o.Expired != nil {
		c.o.Expired(f.queue, int(expired))
	}
	a := admission{c: c, f: f, opened: c.opening.count()}
	for _, r := range reply[4:] {
		d, problem := deliveryOf(f, r)
		if problem != nil {
			err = errors.Join(err, problem)
			continue
		}
		if refusal := c.refusal(d); refusal != nil {
			ctx, cancel := c.bounded()
			s, problem := c.settle(ctx, f.queue, d.ID, d.run, *refusal)
			cancel()
			err = errors.Join(err, problem)
			if s.Kind == Fail && c.o.Unreadable != nil {
				c.o.Unreadable(f.queue, d.ID, d.Key, s)
			}
			passed.dropped++
			continue
		}
		if !a.admit(d) {
			passed.held++
			continue
		}
		ds = append(ds, d)
	}
	return ds, passed, errors.Join(err, a.hold())
}

// refusal takes the job in hand, or says what becomes of it instead.
func (c *Client) refusal(d *Delivery) *Outcome {
	if err := store.CheckMessage(d.msg); err != nil {
		// asynq could not read it, and would keep the slot for ever.
		return &Outcome{Kind: Fail, Error: err.Error()}
	}
	switch c.inHand.add(d) {
	case runsStill:
		// The job outlived its lease here and came back while its handler still
		// runs, or before its publication is on record. It is never run twice in one
		// process.
		return &Outcome{Kind: Unstarted, At: d.fetched.Add(staleAfter), Reason: store.ReasonOf(store.ReasonStillRunning, c.o.Worker)}
	case suspectWaits:
		return c.suspectOutcome()
	}
	return nil
}

func deliveryOf(f fetch, reply any) (*Delivery, error) {
	values, ok := reply.([]any)
	if !ok || len(values) < 8 || (values[7] != nil && len(values) < 9) {
		return nil, fmt.Errorf("asynqx: dequeue %s: unexpected reply %T", f.queue, reply)
	}
	text := func(i int) string { s, _ := values[i].(string); return s }
	place := ""
	if values[7] != nil {
		place = text(8)
	}
	expires := time.Time{}
	if left := text(6); left != "" {
		// From before the call on, so that it is never too late.
		expires = f.at.Add(store.Duration(int64(atoi(left))))
	}
	return &Delivery{
		Expires: expires, Key: text(7), place: place,
		Queue: f.queue, ID: text(0), msg: text(1), run: f.run, fetched: f.at, Permit: f.permit,
		Fields: Fields{
			Attempt: atoi(text(2)), Reschedules: atoi(text(3)), Crashes: atoi(text(4)), ExpiresAt: text(5),
		},
	}, nil
}

func atoi(s string) int {
	n := 0
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0
		}
		n = n*10 + int(r-'0')
	}
	return n
}
