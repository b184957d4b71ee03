package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// NamedLimit is a limit that destinations share by its name: all calls that draw on it, of any destination and
// instance, keep its windows and its concurrency together.
type NamedLimit struct {
	// Name of the limit. [a-z0-9][a-z0-9-]{0,62}.
	Name string
	// Unit of Rate, for people; "" is calls. [a-z0-9][a-z0-9-]{0,62}.
	Unit string
	// Rate are its windows; empty: none.
	Rate Rates
	// Concurrency is how many of the calls may be in flight; 0: any number.
	Concurrency int
	// OperatorRate is as in Options, for Rate.
	OperatorRate bool
}

// Draw is what a call takes of a named limit.
type Draw struct {
	// Limit is the name, one of [Options.Limits].
	Limit string
	// Key makes a budget of its own for each value, such as a model; "" is the limit itself. See [ToKey].
	Key string
	// Cost in the limit's unit. 0 is 1; less than 0 is nothing, as it is not known yet: see [Permit.ForCall].
	Cost int
}

// maxNamedLimits is how many a destination may draw on.
const maxNamedLimits = 8

// maxLimitCost bounds what a call takes of a named limit.
const maxLimitCost = maxRateCalls

func validLimits(limits []NamedLimit) error {
	if len(limits) > maxNamedLimits {
		return fmt.Errorf("there are %d: want up to %d", len(limits), maxNamedLimits)
	}
	var errs []error
	for i, l := range limits {
		switch err := l.Rate.validate(); {
		case !destinationPattern.MatchString(l.Name):
			errs = append(errs, fmt.Errorf("the name %q is not valid: want 1 to 63 of a-z, 0-9 and '-', not starting with '-'", l.Name))
		case l.Unit != "" && !destinationPattern.MatchString(l.Unit):
			errs = append(errs, fmt.Errorf("%s: the unit %q is not valid: want a word such as tokens", l.Name, l.Unit))
		case slices.ContainsFunc(limits[:i], func(other NamedLimit) bool { return other.Name == l.Name }):
			errs = append(errs, fmt.Errorf("%s is there twice", l.Name))
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", l.Name, err))
		case l.Concurrency < 0 || len(l.Rate) == 0 && l.Concurrency == 0:
			errs = append(errs, fmt.Errorf("%s: want a rate, or a concurrency of 1 or more", l.Name))
		}
	}
	return errors.Join(errs...)
}

// namedLimit is one of the options as the scripts take it.
type namedLimit struct {
	NamedLimit
	windows declared
	keys    []string    // without a key
	redis   *redisClock // of its slot's server, on a Redis Cluster
}

func nameLimits(n Namespace, limits []NamedLimit, born time.Time) (out []namedLimit, err error) {
	for _, l := range limits {
		windows, err := declare(l.Rate)
		if err != nil {
			return nil, err
		}
		out = append(out, namedLimit{l, windows, n.limitKeys(l.Name, ""), newRedisClock(born)})
	}
	return out, nil
}

// limitKeys are the KEYS of limits.lua.
func (n Namespace) limitKeys(name, key string) []string {
	prefix := string(cmp.Or(n, DefaultNamespace)) + ":{limit:" + name + "}:limit"
	if key != "" {
		key = ":" + key
	}
	return []string{prefix + key, prefix + "-inflight" + key, prefix + "-keys", prefix + "-waiting" + key}
}

// limitReports are ids of what was counted of a limit on a Redis Cluster.
func (n Namespace) limitReports(name string) string {
	return string(cmp.Or(n, DefaultNamespace)) + ":{limit:" + name + "}:limit-reports"
}

// drawn is what a call takes of one of the options' limits.
type drawn struct {
	of   *namedLimit
	key  string
	cost int
	at   int64 // when it was taken, clock of the limit's Redis, µs; 0: with the permit
}

// draws are of one call, one for each limit; nil for none. They do not change once it is permitted: copies of a permit
// share them.
type draws []drawn

// drawsOf completes draws: what is not said of a limit is the call's cost.
func (c *granter) drawsOf(cost int, said []Draw) (*draws, error) {
	if len(c.named) == 0 {
		return nil, nil
	}
	out := make(draws, len(c.named))
	for i := range c.named {
		out[i] = drawn{of: &c.named[i], cost: max(1, cost)}
	}
	for _, d := range said {
		i := slices.IndexFunc(c.named, func(l namedLimit) bool { return l.Name == d.Limit })
		if i < 0 {
			return nil, fmt.Errorf("breaker: allow %s: a call draws on limit %q, which the options do not have", c.place.name, d.Limit)
		}
		if d.Key != "" {
			out[i].key = ToKey(d.Key)
		}
		out[i].cost = min(max(1, d.Cost), maxLimitCost)
		if d.Cost < 0 {
			out[i].cost = 0
		}
	}
	for _, d := range out {
		if w, never := d.of.Rate.TooSmall(d.cost); never && !d.of.OperatorRate {
			return nil, &CostError{Name: c.place.name, Limit: d.of.Name, Cost: d.cost, Window: w}
		}
	}
	return &out, nil
}

func (d *draws) all() draws {
	if d == nil {
		return nil
	}
	return *d
}

// slots reports whether a call counts as in flight.
func (d *draws) slots() bool {
	return slices.ContainsFunc(d.all(), func(one drawn) bool { return one.of.Concurrency > 0 })
}

// equal reports whether two calls take the same.
func (d *draws) equal(other *draws) bool {
	return slices.EqualFunc(d.all(), other.all(), func(a, b drawn) bool { return a.of == b.of && a.key == b.key && a.cost == b.cost })
}

// times is what n such calls take.
func (d *draws) times(n int) *draws {
	if d == nil {
		return nil
	}
	out := slices.Clone(*d)
	for i := range out {
		out[i].cost *= n
	}
	return &out
}

// corrected is what the call has really taken; d itself if that is the same.
func (d *draws) corrected(said []Draw) *draws {
	out := d
	for i, one := range d.all() {
		for _, s := range said {
			if s.Limit == one.of.Name && s.Cost > 0 && s.Cost != one.cost {
				if out == d {
					own := slices.Clone(*d)
					out = &own
				}
				(*out)[i].cost = min(s.Cost, maxLimitCost)
			}
		}
	}
	return out
}

// text is for [Permit.MarshalText]: "name/key/cost/at,name/key/cost/at"; "-" without draws.
func (d *draws) text() string {
	if d == nil {
		return "-"
	}
	parts := make([]string, len(*d))
	for i, one := range *d {
		parts[i] = fmt.Sprintf("%s/%s/%d/%d", one.of.Name, one.key, one.cost, one.at)
	}
	return strings.Join(parts, ",")
}

// drawsOfText reads that; a limit that the options do not have is left out.
func (c *granter) drawsOfText(text string) *draws {
	var out draws
	for part := range strings.SplitSeq(text, ",") {
		fields := append(strings.Split(part, "/"), "", "", "") // an earlier version has no at
		i := slices.IndexFunc(c.named, func(l namedLimit) bool { return l.Name == fields[0] })
		at, _ := strconv.ParseInt(fields[3], 10, 64)
		if n, err := strconv.Atoi(fields[2]); err == nil && i >= 0 && validKey(fields[1]) == nil {
			out = append(out, drawn{&c.named[i], fields[1], n, at})
		}
	}
	if out == nil {
		return nil
	}
	return &out
}

// line changes the charge of a call on one limit, for limits.lua; at is when the present charge was made.
type line struct {
	drawn
	have int
	to   *drawn // what the permit has then; nil: nothing
}

// changes returns the lines from the charges that a permit has made, at an instant, to the charges of its call. same:
// also the limits whose charge stays the same.
func changes(have *draws, at int64, take *draws, same bool) (out []line) {
	for i, t := range take.all() {
		l := line{t, 0, &(*take)[i]}
		for _, h := range have.all() {
			if h.of == t.of && h.key == t.key {
				l.have, l.at = h.cost, cmp.Or(h.at, at)
				if have != take {
					l.to.at = l.at
				}
			}
		}
		if same || l.have != l.cost {
			out = append(out, l)
		}
	}
	for _, h := range have.all() {
		if !slices.ContainsFunc(take.all(), func(t drawn) bool { return t.of == h.of && t.key == h.key }) {
			out = append(out, line{drawn{h.of, h.key, 0, cmp.Or(h.at, at)}, h.cost, nil})
		}
	}
	return out
}

// took notes when the lines were taken.
func took(lines []line, at int64) {
	for _, l := range lines {
		if l.to != nil {
			l.to.at = at
		}
	}
}

// slotsOf are the lines without what they change: their slots are freed.
func slotsOf(lines []line) []line {
	out := slices.Clone(lines)
	for i := range out {
		out[i].have = out[i].cost
	}
	return out
}

// once is a further call of a permit, which takes no slot.
func once(lines []line) []line {
	for i := range lines {
		own := *lines[i].of
		own.Concurrency = 0
		lines[i].of, lines[i].to = &own, nil
	}
	return lines
}

// text is the line.
func (l line) text(at time.Time) string {
	return l.of.Name + ";" + l.key + ";" + strconv.Itoa(l.of.Concurrency) + ";" + strconv.Itoa(l.cost) + ";" + strconv.Itoa(l.have) + ";" + strconv.FormatInt(l.at, 10) + ";" +
		l.of.windows.text + ";" + l.of.windows.bounds(at) + "\n"
}

func (l line) keys(n Namespace) []string {
	if l.key == "" {
		return l.of.keys
	}
	return n.limitKeys(l.of.Name, l.key)
}

// draw adds changes of named limits to a script of the destination; not on a Redis Cluster, where their slots differ.
func (q *question) draw(lines []line) {
	if len(lines) == 0 || q.c.spread {
		return
	}
	now := q.c.redisTime()
	var text strings.Builder
	var keys []any
	for _, l := range lines {
		text.WriteString(l.text(now))
		for _, key := range l.keys(q.c.place.namespace) {
			keys = append(keys, key)
		}
	}
	n, _ := q.args[2].(int)
	q.args = slices.Insert(q.args, 3+n, keys...)
	q.args[2] = n + len(keys)
	q.text("limits", text.String())
}

// redisTime is about the time of Redis.
func (c *granter) redisTime() time.Time {
	return time.UnixMicro(c.redis.at(c.clock.now()))
}

// asked is within for a permit that draws on named limits. On a Redis Cluster each named limit lives in its own slot,
// so one script cannot charge them all. Higher charges are made before the script, limit by limit in the order of
// their names, and refunded if it refuses; lower charges are refunded after it.
func (c *granter) asked(ctx context.Context, until time.Time, key string, id uint64, lines []line, lease time.Duration, add func(q *question)) (reply, error) {
	ask := func() (reply, error) {
		return c.within(ctx, until, key, func(q *question) {
			q.lines = lines
			q.draw(lines)
			add(q)
		})
	}
	if !c.spread {
		return ask()
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.of.Name, b.of.Name) })
	var r reply
	var err error
	var taken, given []line
	for _, l := range lines {
		if l.cost < l.have {
			given = append(given, l)
			continue
		}
		if r, err = c.drawOne(ctx, l, "permit", token(id), "lease", millis(lease)); err != nil || r.result == resultDenied {
			break // if the reply is lost it may stay taken, and the slot until its lease ends
		}
		took([]line{l}, r.now)
		l.at = r.now
		l.cost, l.have = l.have, l.cost
		taken = append(taken, l)
	}
	if err == nil && r.result != resultDenied {
		if r, err = ask(); err == nil && r.result != resultDenied {
			taken = given
		}
	}
	c.giveApart(context.WithoutCancel(ctx), key, time.Time{}, id, newID(), taken, true)
	return r, err
}

// giveApart corrects or refunds the charges of a permit on named limits, on a Redis Cluster. keep: the permit keeps
// the slot of each limit on which a charge is left. The script is retried until Redis confirms it, and the mark makes
// it count once.
func (c *granter) giveApart(ctx context.Context, key string, until time.Time, id, mark uint64, lines []line, keep bool) {
	give := func(ctx context.Context, _ time.Duration) (err error) {
		lines = slices.DeleteFunc(lines, func(l line) bool {
			_, failed := c.drawOne(ctx, l, "permit", token(id), "mark", token(mark), "keep", flagText(keep))
			err = cmp.Or(err, failed)
			return failed == nil
		})
		return err
	}
	if c.spread && give(ctx, 0) != nil {
		c.owe(key, until, give)
	}
}

func (c *granter) drawOne(ctx context.Context, l line, more ...any) (r reply, err error) {
	ctx, cancel := within(ctx, c.options.Timeout)
	defer cancel()
	p := c.place
	p.keys = append([]string{p.namespace.limitReports(l.of.Name)}, l.keys(p.namespace)...)
	for range 16 { // the windows may be of another time, as in within
		asked := c.clock.now()
		clock := l.of.redis
		steady, by := clock.watch(asked)
		r, err = limitScript.run(ctx, c.rdb, p, c.caller(), append([]any{"limits", l.text(time.UnixMicro(clock.at(asked))), "steady", steady, "by", by}, more...)...)
		if err != nil {
			return r, unavailable("draw on limit", l.of.Name, err)
		}
		clock.observe(r.now, asked, c.clock.now())
		if r.result != resultBounds {
			return r, nil
		}
	}
	return r, fmt.Errorf("breaker: draw on limit %s: its windows are of another time than Redis's", l.of.Name)
}

func flagText(set bool) string {
	if set {
		return "1"
	}
	return ""
}

// NamedUse is what is used of a named limit, or of one value of its key.
type NamedUse struct {
	Name string `json:"name"`
	// Unit is "calls" unless the limit has another one.
	Unit string `json:"unit"`
	// Key is the value; "" for a limit without a key.
	Key string `json:"key"`
	// Windows of its rate.
	Windows []LimitWindow `json:"windows"`
	// Concurrency is nil without one.
	Concurrency *ConcurrencyLimit `json:"concurrency"`
}

// mostLimitKeys is how many values of a limit's key are read: the ones used last.
const mostLimitKeys = 50

// limitsText are limits as instances register them, see arguments.lua.
func limitsText(limits []namedLimit) string {
	var out []string
	for _, l := range limits {
		out = append(out, l.Name+";"+l.Unit+";"+strconv.Itoa(l.Concurrency)+";"+l.windows.text)
	}
	return strings.Join(out, "\t")
}

// parseLimits reads what limitsText writes, but for what is damaged.
func parseLimits(text string) (out []NamedLimit) {
	for one := range strings.SplitSeq(text, "\t") {
		parts := strings.SplitN(one, ";", 4)
		if len(parts) < 4 {
			continue
		}
		l := NamedLimit{Name: parts[0], Unit: parts[1]}
		l.Concurrency, _ = strconv.Atoi(parts[2])
		for window := range strings.FieldsSeq(parts[3]) {
			r, err := parseScript(window)
			if err == nil {
				l.Rate = append(l.Rate, r)
			}
		}
		if validLimits([]NamedLimit{l}) == nil {
			out = append(out, l)
		}
	}
	return out
}

// readNamed adds to the limits of destinations how much of their named limits is used; for a limit with a key, by
// each of the values used last, at most 50. named are the named limits of each destination.
func (n Namespace) readNamed(ctx context.Context, rdb redis.UniversalClient, into []Limits, named [][]NamedLimit) error {
	of := map[string]NamedLimit{}
	for _, l := range slices.Concat(named...) {
		of[l.Name] = l
	}
	if len(of) == 0 {
		return nil
	}
	values, used, inFlight := map[string]*redis.StringSliceCmd{}, map[string]*redis.MapStringStringCmd{}, map[string]*redis.IntCmd{}
	var clock *redis.TimeCmd
	_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		clock = pipe.Time(ctx)
		for name := range of {
			values[name] = pipe.ZRevRange(ctx, n.limitKeys(name, "")[2], 0, mostLimitKeys-1)
		}
		return nil
	})
	if err != nil {
		return unavailable("read", "named limits", err)
	}
	now := clock.Val()
	keysOf := func(name string) []string {
		if keys := values[name].Val(); len(keys) > 0 {
			return keys
		}
		return []string{""}
	}
	_, err = redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for name := range of {
			for _, key := range keysOf(name) {
				at := n.limitKeys(name, key)
				used[at[0]] = pipe.HGetAll(ctx, at[0])
				inFlight[at[0]] = pipe.ZCount(ctx, at[1], "("+strconv.FormatInt(now.UnixMilli(), 10), "+inf")
			}
		}
		return nil
	})
	if err != nil {
		return unavailable("read", "named limits", err)
	}
	for i, limits := range named {
		for _, l := range limits {
			for _, key := range keysOf(l.Name) {
				at := n.limitKeys(l.Name, key)[0]
				use := NamedUse{Name: l.Name, Unit: cmp.Or(l.Unit, "calls"), Key: key, Windows: usedOf(l.Rate, used[at].Val(), now)}
				if l.Concurrency > 0 {
					use.Concurrency = &ConcurrencyLimit{Limit: l.Concurrency, Used: int(inFlight[at].Val())}
				}
				into[i].Named = append(into[i].Named, use)
			}
		}
	}
	return nil
}

// usedOf is what is used of windows, by their hash; see rate.lua.
func usedOf(rates Rates, stored map[string]string, now time.Time) []LimitWindow {
	out := []LimitWindow{}
	names := make([]string, len(rates))
	for i, r := range rates {
		names[i] = r.script()
	}
	states := strings.Fields(stored[strings.Join(names, " ")])
	for i, r := range rates {
		name, used := r.script(), []usedWindow{{Rate: r}}
		if i+1 < len(states) {
			if known := parseWindows(name + " " + states[i+1]); known != nil {
				used = known
			}
		}
		out = append(out, used[0].status(now.UnixMicro()))
	}
	return out
}
