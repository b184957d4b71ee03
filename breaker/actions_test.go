package breaker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// name is the breaker's that the actions are about.
func (h *harness) name() string {
	if h.place.key == "" {
		return h.place.name
	}
	return h.place.name + "/" + h.place.key
}

// on has another instance act; it is made when it is first named.
func on(instance string, do action) action {
	return func(h *harness) string {
		other := *h
		other.b = h.instance(instance)
		return do(&other)
	}
}

func (h *harness) instance(name string) *Breaker {
	h.t.Helper()
	if b := h.instances[name]; b != nil {
		return b
	}
	o := h.options
	o.Instance = name
	b, err := newTestBreaker(h.rdb, o, h.clock.clock())
	if err != nil {
		h.t.Fatal(err)
	}
	closeAtEnd(h.t, b)
	h.instances[name] = b
	other := *h
	other.b = b
	look(&other)
	return b
}

// of has the action be about a key's breaker.
func of(key string, do action) action {
	return func(h *harness) string {
		other := *h
		other.b = h.b.Key(key)
		other.place = placeOf(h.place.name, key)
		return do(&other)
	}
}

// both does one action, and answers what the next one answers.
func both(first, then action) action {
	return func(h *harness) string {
		first(h)
		return then(h)
	}
}

// try asks for a permit, and says what of it is in Redis.
func try(name string) action {
	return func(h *harness) string {
		p, err := h.b.Allow(h.t.Context())
		return h.got(name, p, err)
	}
}

// forKey makes of a destination's permit one for a key, which goes by another name.
func forKey(name, key, as string) action {
	return func(h *harness) string {
		p, err := h.permits[name].ForKey(h.t.Context(), key)
		return h.got(as, p, err)
	}
}

// got keeps a permit and says what it holds, or who refused it and why.
func (h *harness) got(name string, p Permit, err error) string {
	h.t.Helper()
	var open *OpenError
	switch {
	case errors.As(err, &open):
		_, key, keyed := strings.Cut(open.Name, "/")
		who := "D"
		if keyed {
			who += "/" + key
		}
		cause := open.Cause
		if len(h.b.options.Rate) > 1 || len(h.b.options.KeyRate) > 0 || h.b.rate.fixed != nil {
			cause += " " + open.Window.String()
		}
		if open.Reserved {
			cause += " reserved"
		}
		if open.Limit != "" {
			cause += strings.TrimRight(" "+open.Window.String(), " ") + " " + open.Limit
		}
		return fmt.Sprintf("%s %s %s for %v", who, open.State, cause, open.RetryAfter)
	case err != nil && len(h.b.options.Limits) > 0:
		return strings.ReplaceAll(err.Error(), h.place.name, "D")
	case err != nil:
		h.t.Fatal(err)
	}
	h.permits[name] = p
	var words []string
	for word, holds := range holdWords {
		if p.holds&holds == holds {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "permit"
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// tries asks n times and keeps the permits as name0, name1 …; it tells how many it
// got, and why not more.
func tries(n int, name string) action {
	return func(h *harness) string {
		for i := range n {
			if got := try(fmt.Sprint(name, i))(h); strings.Contains(got, " for ") {
				return fmt.Sprintf("%d, then %s", i, got)
			}
		}
		return fmt.Sprint(n)
	}
}

// tellAll reports the permits name0 to name(n-1) and answers what the last report did.
func tellAll(n int, name string, o Outcome) action {
	return func(h *harness) (got string) {
		for i := range n {
			got = tell(fmt.Sprint(name, i), o)(h)
		}
		return got
	}
}

// live registers the instance, as it does by itself every ten seconds.
func live(h *harness) string { return liveFor(validFor * registerEvery)(h) }

func liveFor(valid time.Duration) action {
	return func(h *harness) string {
		if err := h.b.register(h.t.Context(), valid); err != nil {
			h.t.Fatal(err)
		}
		return fmt.Sprint(h.b.capacity.Load())
	}
}

// join has the instance read, and tell what it has in flight if calls are counted.
func join(h *harness) string {
	look(h)
	h.b.sendJoins(h.t.Context())
	return describe(h.b.Status())
}

func force(length time.Duration) action {
	return func(h *harness) string {
		s := h.byHand(policy.Forcing, "ann", millis(length), "they know")
		look(h)
		return describe(s)
	}
}

// level is how far the cooldown has grown.
func level(h *harness) string { return fmt.Sprint(h.status().Level) }

// episodes are the incidents, oldest first, in the words of the rows.
func episodes(h *harness) string {
	incidents, err := incidentsOf(h.t.Context(), h.rdb, h.name(), 0)
	if err != nil {
		h.t.Fatal(err)
	}
	var parts []string
	for _, in := range incidents {
		length := "lasts"
		if !in.Ended.IsZero() {
			length = in.Ended.Sub(in.Started).String()
		}
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s→%s probes=%d wasted=%d rescheduled=%d %v %s %s", length, in.Cause, in.EndedBy,
			in.Probes, in.Wasted, in.Rescheduled, in.Instances, in.By, in.Reason)))
	}
	return strings.Join(parts, "; ")
}
