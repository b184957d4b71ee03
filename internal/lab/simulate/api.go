package simulate

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// Kinds of parts of an API, as ParseAPI reads them.
const Kinds = "window:60/1h, window:60/1h@UTC, sliding:60/1h, bucket:60/1h:10, penalty:60/1h+1m, concurrency:5, outage:2h+30m, hints:retry-after, hints:ratelimit"

// MaxSliding bounds the calls of a window that slides.
const MaxSliding = 1_000_000

// API is a model of an API, whose limits each call draws on.
type API struct {
	limits            []limit
	outages           [][2]time.Duration // begin, since the start, and length
	retryAfter, tells bool
}

// limit is one limit of an API, and how much of it is used.
type limit interface {
	// wait is how long no call is accepted; 0 is not at all.
	wait(now time.Time) time.Duration
	// take counts an accepted call, which ends at end.
	take(now, end time.Time)
	// left is what an API would announce; a zero Limit is nothing.
	left(now time.Time) breaker.Budget
}

// ParseAPI reads a model: its limits, which hold together, outages, and announcements, with commas between them.
func ParseAPI(text string) (*API, error) {
	a := &API{}
	for part := range strings.SplitSeq(text, ",") {
		kind, value, _ := strings.Cut(strings.TrimSpace(part), ":")
		if err := a.add(kind, value); err != nil {
			return nil, fmt.Errorf("%q: %w", part, err)
		}
	}
	return a, nil
}

func (a *API) add(kind, value string) error {
	first, second, two := strings.Cut(value, "+")
	var more time.Duration
	if kind == "penalty" || kind == "outage" {
		var err error
		if more, err = time.ParseDuration(second); !two || err != nil || more <= 0 || more > longest {
			return fmt.Errorf("a time of up to 8784h must follow the +, such as +1m: want %s", Kinds)
		}
	}
	switch kind {
	case "hints":
		for name := range strings.SplitSeq(value, "+") {
			switch name {
			case "retry-after":
				a.retryAfter = true
			case "ratelimit":
				a.tells = true
			default:
				return errors.New("want hints:retry-after, hints:ratelimit or hints:retry-after+ratelimit")
			}
		}
		return nil
	case "outage":
		from, err := time.ParseDuration(first)
		if err != nil || from < 0 {
			return errors.New("want the time from the start, and the length: outage:2h+30m")
		}
		a.outages = append(a.outages, [2]time.Duration{from, more})
		return nil
	case "concurrency":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.New("want the calls at once, such as concurrency:5")
		}
		a.limits = append(a.limits, &atOnce{calls: n})
		return nil
	}
	if kind == "penalty" {
		value = first
	} else if kind != "window" && kind != "sliding" && kind != "bucket" {
		return fmt.Errorf("the kind is not known: want %s", Kinds)
	}
	r, err := breaker.ParseRate(value)
	if err != nil {
		return fmt.Errorf("%w; want %s", err, Kinds)
	}
	w := window{calls: r.Calls, per: r.Per}
	if r.Zone != "" {
		if w.zone, err = time.LoadLocation(r.Zone); err != nil || r.Per > 24*time.Hour || kind != "window" {
			return errors.New("a zone is for windows of up to a day")
		}
	}
	switch kind {
	case "window":
		a.limits = append(a.limits, &w)
	case "sliding":
		if r.Calls > MaxSliding {
			return fmt.Errorf("want at most %d calls in a window that slides: each one is kept", MaxSliding)
		}
		a.limits = append(a.limits, &sliding{calls: r.Calls, per: r.Per})
	case "bucket":
		most := float64(max(1, r.Burst))
		a.limits = append(a.limits, &bucket{most: most, tokens: most, gap: r.Per.Seconds() / float64(r.Calls)})
	case "penalty":
		a.limits = append(a.limits, &penalty{window: w, longer: more})
	}
	return nil
}

// response is what the API says to a call.
type response struct {
	status int
	hint   time.Duration
	budget *breaker.Budget
}

// call decides a call at now that ends at end, since after the start.
func (a *API) call(now, end time.Time, since time.Duration) response {
	for _, o := range a.outages {
		if since >= o[0] && since-o[0] < o[1] {
			return response{status: http.StatusBadGateway}
		}
	}
	r := response{status: http.StatusOK}
	for _, l := range a.limits {
		r.hint = max(r.hint, l.wait(now))
	}
	refused := r.hint > 0
	for _, l := range a.limits {
		if p, ok := l.(*penalty); refused && ok {
			p.refuse(now)
			r.hint = max(r.hint, l.wait(now))
		} else if !refused {
			l.take(now, end)
		}
		if b := l.left(now); a.tells && b.Limit > 0 && (r.budget == nil || b.Remaining < r.budget.Remaining) {
			r.budget = &b
		}
	}
	if refused {
		r.status = http.StatusTooManyRequests
	}
	if r.hint = wholeSeconds(r.hint); !a.retryAfter {
		r.hint = 0
	}
	return r
}

// wholeSeconds rounds up, as headers do. A penalty may have grown beyond what times can say.
func wholeSeconds(d time.Duration) time.Duration {
	return (min(d, longest) + time.Second - 1).Truncate(time.Second)
}

const longest = 366 * 24 * time.Hour

// window is a fixed window: by a zone's clock, or from the first call after the last one.
type window struct {
	calls int
	per   time.Duration
	zone  *time.Location
	end   time.Time
	used  int
}

func (w *window) wait(now time.Time) time.Duration {
	if now.Before(w.end) && w.used >= w.calls {
		return w.end.Sub(now)
	}
	return 0
}

func (w *window) take(now, _ time.Time) {
	if !now.Before(w.end) {
		w.used, w.end = 0, now.Add(w.per)
		if w.zone != nil {
			y, m, d := now.In(w.zone).Date()
			midnight := time.Date(y, m, d, 0, 0, 0, 0, w.zone)
			w.end = midnight.Add(now.Sub(midnight).Truncate(w.per) + w.per)
		}
	}
	w.used++
}

func (w *window) left(now time.Time) breaker.Budget {
	return breaker.Budget{Remaining: w.calls - w.used, Limit: w.calls, Reset: wholeSeconds(max(0, w.end.Sub(now)))}
}

// penalty is a window that each refused call makes longer.
type penalty struct {
	window
	longer time.Duration
}

func (p *penalty) refuse(now time.Time) {
	if p.window.wait(now) > 0 {
		p.end = p.end.Add(p.longer)
	}
}

// sliding counts the calls of the time before now.
type sliding struct {
	calls int
	per   time.Duration
	made  []time.Time // in order
}

func (s *sliding) wait(now time.Time) time.Duration {
	for len(s.made) > 0 && !s.made[0].Add(s.per).After(now) {
		s.made = s.made[1:]
	}
	if len(s.made) < s.calls {
		return 0
	}
	return s.made[0].Add(s.per).Sub(now)
}

func (s *sliding) take(now, _ time.Time) { s.made = append(s.made, now) }

func (s *sliding) left(now time.Time) breaker.Budget {
	b := breaker.Budget{Remaining: s.calls - len(s.made), Limit: s.calls}
	if len(s.made) > 0 {
		b.Reset = wholeSeconds(s.made[0].Add(s.per).Sub(now))
	}
	return b
}

// bucket has a token for each call; one comes each gap, in seconds.
type bucket struct {
	most, tokens, gap float64
	at                time.Time
}

func (b *bucket) wait(now time.Time) time.Duration {
	if b.tokens = min(b.most, b.tokens+now.Sub(b.at).Seconds()/b.gap); b.at.IsZero() {
		b.tokens = b.most
	}
	if b.at = now; b.tokens >= 1-1e-9 {
		return 0
	}
	return time.Duration(math.Round((1 - b.tokens) * b.gap * 1e9))
}

func (b *bucket) take(time.Time, time.Time) { b.tokens-- }

func (b *bucket) left(time.Time) breaker.Budget {
	return breaker.Budget{Remaining: int(b.tokens + 1e-9), Limit: int(b.most), Reset: wholeSeconds(time.Duration(math.Round((b.most - b.tokens) * b.gap * 1e9)))}
}

// atOnce bounds the calls in flight.
type atOnce struct {
	calls int
	ends  []time.Time // in order: calls take the same time
}

func (c *atOnce) wait(now time.Time) time.Duration {
	for len(c.ends) > 0 && !c.ends[0].After(now) {
		c.ends = c.ends[1:]
	}
	if len(c.ends) < c.calls {
		return 0
	}
	return c.ends[0].Sub(now)
}

func (c *atOnce) take(_, end time.Time) { c.ends = append(c.ends, end) }

func (c *atOnce) left(time.Time) breaker.Budget { return breaker.Budget{} }
