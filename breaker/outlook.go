package breaker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// Outlook is what a forecast needs of the breaker of a destination.
type Outlook struct {
	Status Status
	Limits Limits
	// Now is Redis's clock.
	Now time.Time
	// Slots are how many calls each live instance makes at once.
	Slots []int
	// Ends are when the last openings because of a limit of the API ended, or end, the latest first; Oldest is the last of
	// them.
	Ends   []time.Time
	Oldest Event
}

// pastEnds bounds the transitions that are read for Ends.
const pastEnds = 40

// Outlook reads the outlook of a destination: three commands in one round trip, and in two more what is used of named
// limits. The error wraps [ErrUnavailable].
func (n Namespace) Outlook(ctx context.Context, rdb redis.UniversalClient, destination string) (o Outlook, err error) {
	if err := validClient(rdb); err != nil {
		return Outlook{}, fmt.Errorf("breaker: outlook of %s: %w", destination, err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	p := n.placeOf(destination, "")
	var instances *redis.MapStringStringCmd
	var history *redis.StringSliceCmd
	var status *redis.Cmd
	for range 2 {
		_, _ = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error { // each command has its own error
			status = statusScript.EvalSha(ctx, pipe, p.keys, p.args(caller{}, nil)...)
			instances, history = pipe.HGetAll(ctx, p.keys[6]), pipe.LRange(ctx, p.keys[8], 0, pastEnds-1)
			return nil
		})
		if !redis.HasErrorPrefix(status.Err(), "NOSCRIPT") {
			break
		}
		if err := statusScript.Load(ctx, rdb).Err(); err != nil {
			return o, unavailable("read the outlook of", destination, err)
		}
	}
	r, err := p.reply(status)
	if err == nil {
		err = cmp.Or(instances.Err(), history.Err())
	}
	if err != nil {
		return o, unavailable("read the outlook of", destination, err)
	}
	o.Status, o.Limits, o.Now = statusOfReply(&r, p), limitsOf(&r, p), time.UnixMicro(r.now).UTC()
	all := []Limits{o.Limits}
	if err := n.readNamed(ctx, rdb, all, [][]NamedLimit{namedOf(&r, p)}); err != nil {
		return o, err
	}
	o.Limits = all[0]
	for _, text := range instances.Val() {
		var calls int
		var until int64
		if _, err := fmt.Sscan(text, &calls, &until); err == nil && !strings.HasSuffix(text, " remote") && until > o.Now.UnixMilli() {
			o.Slots = append(o.Slots, calls)
		}
	}
	o.Ends, o.Oldest = endsOf(history.Val())
	return o, nil
}

// endsOf reads the last end of each incident because of a limit from transitions, the newest first.
func endsOf(history []string) (ends []time.Time, oldest Event) {
	seen := map[string]bool{}
	for _, entry := range history {
		var t transition
		if json.Unmarshal([]byte(entry), &t) != nil || t.To != Open || seen[t.Incident] {
			continue
		}
		if seen[t.Incident] = true; ofLimit(t.IncidentCause) && t.OpenUntil > 0 {
			ends, oldest = append(ends, instant(t.OpenUntil)), t.event()
		}
	}
	return ends, oldest
}
