package publisher

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/jobs"
)

// Bounds of what a routes keeps, and of its advice.
const (
	// mostRoutes bounds the kinds of calls, by key, method and path.
	mostRoutes = 64
	// routesFor is how long calls are counted from the first refusal on.
	routesFor = time.Hour
	// routeJobs is how many jobs must have been refused, routeOthers how many other calls accepted.
	routeJobs, routeOthers = 3, 10
	// routeChance is the most that the refusals may be probable if the API limits all calls alike.
	routeChance = 1.0 / 20
	// maxRoute is the longest path that is shown, in bytes.
	maxRoute = 80
)

// routes counts which calls of a destination were refused and accepted by their method and path, as
// evidence for a limit of one route. The zero value is ready for use.
type routes struct {
	mu    sync.Mutex
	since time.Time // of the first refusal; zero without one
	last  time.Time // refusal
	seen  map[route]*routeCount
	full  bool // a refused call had no place
	found bool // there was advice
}

// route is a kind of calls: numbers and the like in its path are "*".
type route struct{ key, method, path string }

type routeCount struct {
	accepted, refused int
	jobs              []string // that were refused, the last ones: each counts once
}

func routeOf(key string, r jobs.Request) route {
	parts := strings.Split(strings.Trim(r.Path, "/"), "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "0123456789") && !(len(p) <= 3 && p[0] == 'v') || len(p) > 40 {
			parts[i] = "*"
		}
	}
	return route{key, r.Method, "/" + strings.Join(parts, "/")}
}

// add counts a call that the API accepted or refused. It returns true when there is advice, once.
func (r *routes) add(key string, job *jobs.Job, refused bool, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.since) >= routesFor {
		if !refused {
			return false // nothing to compare it with
		}
		r.since, r.full, r.found, r.seen = now, false, false, map[route]*routeCount{}
	}
	r.count(routeOf(key, job.Request), job.ID, refused, now)
	if r.found {
		return false
	}
	_, r.found = r.limited(now)
	return r.found
}

func (r *routes) count(of route, job string, refused bool, now time.Time) {
	if refused {
		r.last = now
	}
	c := r.seen[of]
	if c == nil {
		if len(r.seen) >= mostRoutes {
			r.full = r.full || refused
			return
		}
		c = &routeCount{}
		r.seen[of] = c
	}
	if !refused {
		c.accepted++
		return
	}
	if slices.Contains(c.jobs, job) {
		return
	}
	if len(c.jobs) == 16 {
		c.jobs = slices.Delete(c.jobs, 0, 1)
	}
	c.jobs = append(c.jobs, job)
	c.refused++
}

// advice returns the route that the API seems to limit by itself. at is now in unix ms of Redis's clock.
func (r *routes) advice(now time.Time, at int64) (store.Route, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.limited(now)
	found.At = at - now.Sub(r.last).Milliseconds()
	return found, ok
}

// limited is advice without its time: all refused calls were of the route, calls of others were accepted meanwhile, and
// that is improbable by chance.
func (r *routes) limited(now time.Time) (store.Route, bool) {
	if r.full || now.Sub(r.since) >= routesFor {
		return store.Route{}, false
	}
	var prefix []string // of the path, of all refused calls
	var first route
	refused, oneKey, oneMethod := 0, true, true
	for of, c := range r.seen {
		if c.refused == 0 {
			continue
		}
		parts := strings.Split(of.path[1:], "/")
		if refused == 0 {
			first, prefix = of, parts
		}
		refused += c.refused
		oneKey, oneMethod = oneKey && of.key == first.key, oneMethod && of.method == first.method
		n := 0
		for n < min(len(prefix), len(parts)) && prefix[n] == parts[n] {
			n++
		}
		prefix = prefix[:n]
	}
	if refused < routeJobs {
		return store.Route{}, false
	}
	of := "/" + strings.Join(prefix, "/")
	own, others, paths := refused, 0, true // paths: the path alone identifies the calls
	for other, c := range r.seen {
		if oneKey && other.key != first.key { // others may have limits of their own
			continue
		}
		under := len(prefix) == 0 || other.path == of || strings.HasPrefix(other.path, of+"/")
		if under && (!oneMethod || other.method == first.method) {
			own += c.accepted
			continue
		}
		others += c.accepted
		paths = paths && !under
	}
	if others < routeOthers {
		return store.Route{}, false
	}
	chance := 1.0
	for range min(refused-1, 100) {
		chance *= float64(own) / float64(own+others)
	}
	if chance > routeChance {
		return store.Route{}, false
	}
	found := store.Route{Route: clean(of, maxRoute), KeyBy: "request.path", Refused: refused, Accepted: others}
	if oneMethod && first.method != "" {
		found.Route = first.method + " " + found.Route
	}
	switch fixed, _, many := strings.Cut(of, "/*"); {
	case !paths:
		found.KeyBy = `request.method + ":" + request.path`
	case (many || r.deeper(of)) && len(fixed) <= maxRoute && toKey(fixed) != "":
		found.KeyBy = "hasPrefix(request.path, " + strconv.Quote(fixed) + ") ? " + strconv.Quote(toKey(fixed)) + " : key"
	}
	return found, true
}

// deeper reports whether a refused call had a longer path.
func (r *routes) deeper(path string) bool {
	for of, c := range r.seen {
		if c.refused > 0 && of.path != path {
			return true
		}
	}
	return false
}
