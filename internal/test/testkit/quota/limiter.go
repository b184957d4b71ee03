// Package quota models limits of HTTP APIs that do not tell their callers what they are: each
// call is accepted or refused, and nothing else is known. The simulation of the breaker drives
// them in virtual time.
package quota

import (
	"math"
	"math/rand/v2"
	"time"
)

// Limiter is an API's limit and what has been used of it. Instants are the time since the Unix
// epoch; they never go back. It is not safe for concurrent use.
type Limiter interface {
	// Take decides a call at now that ends at end, and reports whether it is accepted.
	Take(now, end time.Duration) bool
	// Next returns the earliest instant from now on at which a call would be accepted if none
	// came before it. Only the oracle, which wastes no call, may know that.
	Next(now time.Duration) time.Duration
}

// Delayer is a Limiter that makes accepted calls wait.
type Delayer interface {
	// Delay returns the wait of the call that was accepted last.
	Delay() time.Duration
}

// tick is the resolution of instants.
const tick = time.Microsecond

// seconds returns a duration in whole ticks, rounded up.
func seconds(s float64) time.Duration {
	return time.Duration(math.Ceil(s*1e6)) * tick
}

// Quota is the calls that a window allows, by time.
type Quota func(now time.Duration) int

// constant is a Quota that never changes.
func constant(n int) Quota { return func(time.Duration) int { return n } }

// fixedWindow accepts a number of calls per window. Windows follow the clock if aligned (by offset from UTC),
// otherwise one starts with the first call after the last one's end.
type fixedWindow struct {
	quota   Quota
	length  time.Duration
	aligned bool
	offset  time.Duration
	// others take a part of each window at its start: between none and twice this part.
	others float64
	rng    *rand.Rand

	end  time.Duration
	used int
}

func (w *fixedWindow) roll(now time.Duration, called bool) {
	if now < w.end {
		return
	}
	w.used = 0
	switch {
	case w.aligned:
		w.end = (now + w.offset).Truncate(w.length) - w.offset + w.length
	case called:
		w.end = now + w.length
	default:
		return
	}
	if w.others > 0 {
		w.used = int(w.rng.Float64() * 2 * w.others * float64(w.quota(now)))
	}
}

func (w *fixedWindow) Take(now, _ time.Duration) bool {
	w.roll(now, true)
	if w.used >= w.quota(now) {
		return false
	}
	w.used++
	return true
}

func (w *fixedWindow) Next(now time.Duration) time.Duration {
	w.roll(now, false)
	if w.used < w.quota(now) {
		return now
	}
	return w.end
}

// slidingWindow accepts a call if fewer than the quota were accepted within the window before
// it. If it counts refused calls, too, they also keep it full.
type slidingWindow struct {
	quota         Quota
	length        time.Duration
	countsRefused bool

	calls []time.Duration // of the window, oldest first
}

func (w *slidingWindow) trim(now time.Duration) {
	gone := 0
	for gone < len(w.calls) && w.calls[gone] <= now-w.length {
		gone++
	}
	w.calls = append(w.calls[:0], w.calls[gone:]...)
}

func (w *slidingWindow) Take(now, _ time.Duration) bool {
	w.trim(now)
	ok := len(w.calls) < w.quota(now)
	if ok || w.countsRefused {
		w.calls = append(w.calls, now)
	}
	return ok
}

func (w *slidingWindow) Next(now time.Duration) time.Duration {
	w.trim(now)
	if over := len(w.calls) - w.quota(now); over >= 0 {
		return w.calls[over] + w.length
	}
	return now
}

// slidingCounter estimates a sliding window by two counters, as nginx modules and Cloudflare
// do: the calls of this fixed window, and of the last one as far as it still overlaps.
type slidingCounter struct {
	quota  int
	length time.Duration

	start         time.Duration
	before, since int
}

func (w *slidingCounter) roll(now time.Duration) {
	switch start := now.Truncate(w.length); {
	case start == w.start:
	case start == w.start+w.length:
		w.start, w.before, w.since = start, w.since, 0
	default:
		w.start, w.before, w.since = start, 0, 0
	}
}

func (w *slidingCounter) Take(now, _ time.Duration) bool {
	w.roll(now)
	overlap := 1 - float64(now-w.start)/float64(w.length)
	if float64(w.before)*overlap+float64(w.since)+1 > float64(w.quota) {
		return false
	}
	w.since++
	return true
}

func (w *slidingCounter) Next(now time.Duration) time.Duration {
	w.roll(now)
	start, before, free := w.start, float64(w.before), float64(w.quota-1-w.since)
	if free < 0 { // this window is full whatever the last one had
		start, before, free = w.start+w.length, float64(w.since), float64(w.quota-1)
	}
	if before <= free {
		return max(now, start)
	}
	at := (1 - free/before) * w.length.Seconds()
	return max(now, start+seconds(at)+tick)
}

// tokenBucket accepts a call for each token. Tokens come at a rate per second, up to burst.
type tokenBucket struct {
	burst float64
	rate  func(now time.Duration) float64
	// others take this part of the tokens at random instants.
	others float64
	rng    *rand.Rand

	tokens    float64
	at        time.Duration
	nextOther time.Duration
}

func (b *tokenBucket) fill(now time.Duration) {
	if b.at == 0 {
		b.tokens, b.at = b.burst, now
		b.nextOther = b.other(now)
	}
	for b.others > 0 && b.nextOther <= now {
		b.add(b.nextOther)
		if b.tokens >= 1 {
			b.tokens--
		}
		b.nextOther = b.other(b.nextOther)
	}
	b.add(now)
}

func (b *tokenBucket) other(now time.Duration) time.Duration {
	if b.others == 0 {
		return 0
	}
	return now + seconds(b.rng.ExpFloat64()/(b.others*b.rate(now)))
}

func (b *tokenBucket) add(now time.Duration) {
	if now > b.at {
		b.tokens = min(b.burst, b.tokens+(now-b.at).Seconds()*b.rate(now))
		b.at = now
	}
}

func (b *tokenBucket) Take(now, _ time.Duration) bool {
	b.fill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (b *tokenBucket) Next(now time.Duration) time.Duration {
	b.fill(now)
	if b.tokens >= 1 {
		return now
	}
	return now + seconds((1-b.tokens)/b.rate(now)) + tick
}

// refill is a bucket that gets all tokens of an interval at once.
type refill struct {
	burst, tokens int // most, and per interval
	interval      time.Duration

	left int
	at   time.Duration // of the last refill
}

func (b *refill) fill(now time.Duration) {
	if b.at == 0 {
		b.left, b.at = b.burst, now
	}
	since := now - b.at
	b.at = now - since%b.interval
	b.left = min(b.burst, b.left+int(min(since/b.interval, time.Duration(b.burst)))*b.tokens)
}

func (b *refill) Take(now, _ time.Duration) bool {
	b.fill(now)
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}

func (b *refill) Next(now time.Duration) time.Duration {
	b.fill(now)
	if b.left > 0 {
		return now
	}
	return b.at + b.interval
}

// spacing accepts one call per interval, as nginx's limit_req does: up to burst calls above
// that wait for their turn, or with noDelay go at once; more are refused.
type spacing struct {
	interval time.Duration
	burst    int
	noDelay  bool

	turn  time.Duration // of the next call
	delay time.Duration
}

func (s *spacing) Take(now, _ time.Duration) bool {
	turn := max(s.turn, now)
	if turn-now > time.Duration(s.burst)*s.interval {
		return false
	}
	s.turn, s.delay = turn+s.interval, turn-now
	return true
}

func (s *spacing) Next(now time.Duration) time.Duration {
	return max(now, s.turn-time.Duration(s.burst)*s.interval)
}

func (s *spacing) Delay() time.Duration {
	if s.noDelay {
		return 0
	}
	return s.delay
}

// penalty is a fixed window that blocks when it is used up, until its end. Each call refused
// while it blocks makes that longer.
type penalty struct {
	quota          int
	length, extend time.Duration

	start, block time.Duration
	used         int
}

func (p *penalty) roll(now time.Duration) {
	if p.start == 0 {
		p.start = now
	}
	if since := now - p.start; since >= p.length {
		p.start, p.used = now-since%p.length, 0
	}
}

func (p *penalty) Take(now, _ time.Duration) bool {
	if now < p.block {
		p.block += p.extend
		return false
	}
	p.roll(now)
	if p.used >= p.quota {
		p.block = p.start + p.length
		return false
	}
	p.used++
	return true
}

func (p *penalty) Next(now time.Duration) time.Duration {
	if now < p.block {
		return p.block
	}
	p.roll(now)
	if p.used < p.quota {
		return now
	}
	return p.start + p.length
}

// ban is a limit that shuts a caller out for some time after a number of refusals in a row, as rate limiters of web
// frameworks do.
type ban struct {
	Limiter
	after int
	time  time.Duration

	refused int
	until   time.Duration
}

func (b *ban) Take(now, end time.Duration) bool {
	if now < b.until {
		return false
	}
	if b.Limiter.Take(now, end) {
		b.refused = 0
		return true
	}
	if b.refused++; b.refused >= b.after {
		b.refused, b.until = 0, now+b.time
	}
	return false
}

func (b *ban) Next(now time.Duration) time.Duration {
	return b.Limiter.Next(max(now, b.until))
}

// velocity accepts calls while a counter that halves again and again is below a threshold. An
// accepted call adds 1, a refused one its own weight.
type velocity struct {
	threshold, refused float64
	half               time.Duration

	count float64
	at    time.Duration
}

func (v *velocity) decay(now time.Duration) {
	v.count *= math.Exp2(-(now - v.at).Seconds() / v.half.Seconds())
	v.at = now
}

func (v *velocity) Take(now, _ time.Duration) bool {
	v.decay(now)
	if v.count+1 > v.threshold {
		v.count = min(v.count+v.refused, 4*v.threshold)
		return false
	}
	v.count++
	return true
}

func (v *velocity) Next(now time.Duration) time.Duration {
	v.decay(now)
	if v.count+1 <= v.threshold {
		return now
	}
	return now + seconds(v.half.Seconds()*math.Log2(v.count/(v.threshold-1))) + tick
}

// concurrency accepts a number of calls at a time.
type concurrency struct {
	calls int
	ends  []time.Duration
}

func (c *concurrency) trim(now time.Duration) {
	open := c.ends[:0]
	for _, end := range c.ends {
		if end > now {
			open = append(open, end)
		}
	}
	c.ends = open
}

func (c *concurrency) Take(now, end time.Duration) bool {
	c.trim(now)
	if len(c.ends) >= c.calls {
		return false
	}
	c.ends = append(c.ends, end)
	return true
}

func (c *concurrency) Next(now time.Duration) time.Duration {
	c.trim(now)
	if len(c.ends) < c.calls {
		return now
	}
	first := c.ends[0]
	for _, end := range c.ends {
		first = min(first, end)
	}
	return first
}

// both accepts what each of its limits does.
type both []Limiter

func (b both) Take(now, end time.Duration) bool {
	if b.Next(now) > now {
		return false
	}
	for _, l := range b {
		l.Take(now, end)
	}
	return true
}

func (b both) Next(now time.Duration) time.Duration {
	next := now
	for _, l := range b {
		next = max(next, l.Next(now))
	}
	return next
}

// spurious refuses a part of the calls whatever the limit says.
type spurious struct {
	Limiter
	part float64
	rng  *rand.Rand
}

func (s spurious) Take(now, end time.Duration) bool {
	return s.rng.Float64() >= s.part && s.Limiter.Take(now, end)
}

// costly is a fixed window whose calls cost different numbers of points.
type costly struct {
	fixedWindow
	costs []int
	next  int // cost of the next call
}

func (c *costly) Take(now, _ time.Duration) bool {
	c.draw()
	c.roll(now, true)
	if c.used+c.next > c.quota(now) {
		c.next = 0 // the next one is another call
		return false
	}
	c.used += c.next
	c.next = 0
	return true
}

func (c *costly) Next(now time.Duration) time.Duration {
	c.draw()
	c.roll(now, false)
	if c.used+c.next <= c.quota(now) {
		return now
	}
	return c.end
}

func (c *costly) draw() {
	if c.next == 0 {
		c.next = c.costs[c.rng.IntN(len(c.costs))]
	}
}

// unlimited accepts every call.
type unlimited struct{}

func (unlimited) Take(time.Duration, time.Duration) bool { return true }
func (unlimited) Next(now time.Duration) time.Duration   { return now }
