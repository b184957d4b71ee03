package breaker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// All asks a [Query] for all that are kept.
const All = math.MaxInt

// Query says what [Namespace.Read] reads beside the status.
type Query struct {
	// Keys are the breakers of a destination's keys that are not plainly CLOSED.
	Keys bool
	// Limits are what the fleet knows of its limits.
	Limits bool
	// Slots are how many calls each live instance makes at once.
	Slots bool
	// Incidents and History are how many of the last ones; [All]: the 200 incidents and 1,000 transitions that are
	// kept, of a key 20.
	Incidents, History int
}

// Reading is a breaker as [Namespace.Read] has read it. What the Query has not asked for is zero.
type Reading struct {
	Status Status
	Keys   []Status // by name
	Limits Limits
	Slots  []int // of each live instance, in no order
	// Incidents, the oldest first, the current one included.
	Incidents []Incident
	// History are transitions, the oldest first.
	History []Event
	// Now is Redis's clock.
	Now time.Time
}

// Breakers are the breaker's own status and then the statuses of its keys.
func (r *Reading) Breakers() []Status { return append([]Status{r.Status}, r.Keys...) }

// Get is [Namespace.Read] of the status of one breaker.
func (n Namespace) Get(ctx context.Context, rdb redis.UniversalClient, name string) (Status, error) {
	r, err := n.ReadOne(ctx, rdb, Query{}, name)
	return r.Status, err
}

// ReadOne is [Namespace.Read] of one breaker.
func (n Namespace) ReadOne(ctx context.Context, rdb redis.UniversalClient, q Query, name string) (Reading, error) {
	all, err := n.Read(ctx, rdb, q, name)
	if err != nil {
		return Reading{}, err
	}
	return all[0], nil
}

// Read reads breakers by their names, "destination" or "destination/key", in the order of the names. It takes one round
// trip, another one for each 500 keys that are not plainly CLOSED, and two for named limits. A breaker that has not been
// used is CLOSED. The error says which name is not valid, or wraps [ErrClient] or [ErrUnavailable].
func (n Namespace) Read(ctx context.Context, rdb redis.UniversalClient, q Query, names ...string) ([]Reading, error) {
	places := make([]place, len(names))
	for i, name := range names {
		var err error
		if places[i], err = n.parse(name); err != nil {
			return nil, fmt.Errorf("breaker: read: %w", err)
		}
	}
	if err := validClient(rdb); err != nil {
		return nil, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return n.read(ctx, rdb, q, places)
}

func (n Namespace) read(ctx context.Context, rdb redis.UniversalClient, q Query, places []place) ([]Reading, error) {
	if len(places) == 0 {
		return nil, nil
	}
	asked, err := askAll(ctx, rdb, q, places)
	if err != nil {
		return nil, err
	}
	out, limits, named := make([]Reading, len(places)), make([]Limits, len(places)), make([][]NamedLimit, len(places))
	for i, p := range places {
		r, err := p.reply(asked[i].status)
		if err != nil {
			return nil, err
		}
		if out[i], err = asked[i].reading(ctx, rdb, p, q, &r); err != nil {
			return nil, err
		}
		if q.Limits {
			limits[i], named[i] = limitsOf(&r, p), namedOf(&r, p)
		}
	}
	if !q.Limits {
		return out, nil
	}
	if err := n.readNamed(ctx, rdb, limits, named); err != nil {
		return nil, err
	}
	for i := range out {
		out[i].Limits = limits[i]
	}
	return out, nil
}

// answers are the answers of one breaker; nil what was not asked for.
type answers struct {
	status, keys       *redis.Cmd
	slots              *redis.MapStringStringCmd
	incidents, history *redis.StringSliceCmd
}

// askAll asks in one round trip, and in a second one if Redis does not know the scripts yet. Each answer has its own
// error.
func askAll(ctx context.Context, rdb redis.UniversalClient, q Query, places []place) ([]answers, error) {
	all := make([]answers, len(places))
	unknown := func(c *redis.Cmd) bool { return c != nil && redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }
	for range 2 {
		_, _ = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error { // each command has its own error
			for i, p := range places {
				a := &all[i]
				a.status = statusScript.EvalSha(ctx, pipe, p.keys, p.args(caller{}, nil)...)
				if q.Keys && p.key == "" {
					a.keys = snapshotScript.EvalSha(ctx, pipe, p.keys, p.args(caller{}, []any{0, "1", snapshotPage})...)
				}
				if q.Slots {
					a.slots = pipe.HGetAll(ctx, p.keys[6])
				}
				if q.Incidents > 0 {
					a.incidents = pipe.LRange(ctx, p.incidents, 0, int64(q.Incidents)-1)
				}
				if q.History > 0 {
					a.history = pipe.LRange(ctx, p.history, 0, int64(q.History)-1)
				}
			}
			return nil
		})
		if !slices.ContainsFunc(all, func(a answers) bool { return unknown(a.status) || unknown(a.keys) }) {
			break
		}
		for _, s := range []*script{statusScript, snapshotScript} {
			if err := s.Load(ctx, rdb).Err(); err != nil {
				return nil, unavailable("read", places[0].name, err)
			}
		}
	}
	return all, nil
}

// reading reads the answers about the breaker of r.
func (a *answers) reading(ctx context.Context, rdb redis.UniversalClient, p place, q Query, r *reply) (out Reading, err error) {
	out.Status, out.Now = statusOfReply(r, p), time.UnixMicro(r.now).UTC()
	if a.keys != nil {
		if out.Keys, err = p.openKeys(ctx, rdb, a.keys); err != nil {
			return out, err
		}
	}
	if a.slots != nil {
		live, err := a.slots.Result()
		if err != nil {
			return out, unavailable("read instances of", out.Status.Name, err)
		}
		out.Slots = slotsOfInstances(live, out.Now)
	}
	if a.incidents != nil {
		if out.Incidents, err = incidents(a.incidents, out.Status, q.Incidents); err != nil {
			return out, err
		}
	}
	if a.history != nil {
		history, err := transitionsOf(a.history, out.Status.Name, 0)
		if err != nil {
			return out, err
		}
		for _, t := range slices.Backward(history) {
			out.History = append(out.History, t.event())
		}
	}
	return out, nil
}

// reply is what statusScript replied.
func (p place) reply(cmd *redis.Cmd) (reply, error) {
	text, err := cmd.Text()
	if err != nil {
		return reply{}, unavailable("read", p.name, err)
	}
	r, err := parseReply(text, parseRecord)
	if err != nil {
		return reply{}, fmt.Errorf("breaker: read %s: %w", p.name, err)
	}
	r.settle()
	return r, nil
}

// openKeys are the breakers of keys that are not plainly CLOSED, by name. cmd is the first page.
func (p place) openKeys(ctx context.Context, rdb redis.UniversalClient, cmd *redis.Cmd) (keys []Status, err error) {
	for {
		values, err := cmd.StringSlice()
		if err != nil {
			return nil, unavailable("read keys of", p.name, err)
		}
		s, err := parseSnapshot(values)
		if err != nil {
			return nil, fmt.Errorf("breaker: read keys of %s: %w", p.name, err)
		}
		received := time.Now()
		for _, c := range s.changes {
			if c.name != p.name && !c.record.Plain() {
				keys = append(keys, c.record.statusAt(s.now, received))
			}
		}
		if len(s.changes) < snapshotPage {
			break
		}
		since := s.changes[len(s.changes)-1].revision
		cmd = snapshotScript.Run(ctx, rdb, p.keys, p.args(caller{}, []any{since, "1", snapshotPage})...)
	}
	slices.SortFunc(keys, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(keys, func(a, b Status) bool { return a.Name == b.Name }), nil // changed while it was read
}

// slotsOfInstances are how many calls the instances make at once that are live.
func slotsOfInstances(instances map[string]string, now time.Time) (slots []int) {
	for _, text := range instances {
		var calls int
		var until int64
		if _, err := fmt.Sscan(text, &calls, &until); err == nil && !strings.HasSuffix(text, " remote") && until > now.UnixMilli() {
			slots = append(slots, calls)
		}
	}
	return slots
}

// incidents reads a list of incidents, the last limit ones with the current one.
func incidents(cmd *redis.StringSliceCmd, now Status, limit int) ([]Incident, error) {
	entries, err := cmd.Result()
	if err != nil {
		return nil, unavailable("read incidents of", now.Name, err)
	}
	var out []Incident
	if now.Incident != "" && now.State != Closed {
		out = append(out, now.incident())
	}
	for i, entry := range entries {
		var in incident
		if err := json.Unmarshal([]byte(entry), &in); err != nil {
			return nil, fmt.Errorf("breaker: read incidents of %s: entry %d: %w", now.Name, i, err)
		}
		if in.ID != now.Incident {
			out = append(out, in.incident())
		}
	}
	out = out[:min(len(out), limit)]
	slices.Reverse(out)
	return out, nil
}
