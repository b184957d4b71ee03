package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// ourQueues lists the queues of all destinations, the most urgent first within each. fresh
// bypasses the cache.
func (c *Client) ourQueues(ctx context.Context, fresh bool) ([]string, error) {
	q := &c.queues
	q.mu.Lock()
	if !fresh && q.queues != nil && c.now().Sub(q.readAt) < cacheFor {
		defer q.mu.Unlock()
		return q.queues, nil
	}
	q.mu.Unlock()
	names, err := c.ns.ListQueues(ctx, c.rdb)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says so itself
	}
	destinations := withQueues(nil, names)
	queues := make([]string, 0, len(destinations)*len(store.Priorities))
	for _, d := range destinations {
		queues = append(queues, c.ns.Queues(d)...)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queues, q.readAt = queues, c.now()
	return queues, nil
}

// listedQueues is ourQueues, fresh and without Tidegate's own destinations: operations
// without a destination leave these out.
func (c *Client) listedQueues(ctx context.Context) ([]string, error) {
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(queues), store.SystemQueue), nil
}

// maxUnknownQueues is the number of queues from which on an unknown destination gets none:
// look-ups of ids and lists read all of them.
const maxUnknownQueues = 100

// republishAfter is how long after a queue was added to asynq's set it is added again: another process may have
// forgotten its destination.
const republishAfter = time.Minute

// publish adds the queue to asynq's set, at most once a minute. Errors: an
// *UnknownDestinationError, or Redis's.
func (c *Client) publish(ctx context.Context, queue string) error {
	c.queues.mu.Lock()
	at, done := c.queues.published[queue]
	c.queues.mu.Unlock()
	if done && time.Since(at) < republishAfter {
		return nil
	}
	name, _, _ := store.ParseQueue(queue)
	if store.System(name) || c.known.has(name) {
		if err := c.rdb.SAdd(ctx, store.QueuesKey, queue).Err(); err != nil {
			return fmt.Errorf("register queue %s: %w", queue, err)
		}
	} else {
		added, err := store.AddQueue(ctx, c.rdb, queue, maxUnknownQueues)
		if err != nil {
			return err
		}
		if !added {
			return &UnknownDestinationError{Name: name, Queues: maxUnknownQueues}
		}
		c.warnUnknown(ctx, name)
	}
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if c.queues.published == nil {
		c.queues.published = map[string]time.Time{}
	}
	c.queues.published[queue] = time.Now()
	if !done {
		c.queues.queues = nil // the cached list lacks a new queue
	}
	return nil
}

// destinationCache caches the known destinations.
type destinationCache struct {
	mu         sync.Mutex
	configured []string        // by WithDestinations or SetDestinations
	names      map[string]bool // those, and what Redis had when the list was read
	warned     map[string]bool

	reading chan struct{} // full while the list is read
	readAt  time.Time     // guarded by reading
}

// configure replaces the configured destinations.
func (d *destinationCache) configure(names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.names == nil {
		d.names = map[string]bool{}
	}
	for _, n := range d.configured {
		delete(d.names, n) // if Redis has it, the next reading adds it
	}
	d.configured = names
	for _, n := range names {
		d.names[n] = true
	}
}

// read replaces what Redis had.
func (d *destinationCache) read(stored map[string]string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names = map[string]bool{}
	for _, n := range d.configured {
		d.names[n] = true
	}
	for n := range stored {
		d.names[n] = true
	}
}

// SetDestinations replaces the destinations of WithDestinations. It changes nothing if a name is not
// valid; the error matches ErrInvalid.
func (c *Client) SetDestinations(names ...string) error {
	var errs fieldErrors
	for _, name := range names {
		if !ValidDestination(name) {
			errs.add("destinations", destinationRule, clip(name))
		}
	}
	if err := errs.err(); err != nil {
		return err
	}
	c.known.configure(names)
	return nil
}

func (d *destinationCache) isConfigured(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.configured, name)
}

func (d *destinationCache) has(name string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[name]
}

// list returns the destinations without Tidegate's own.
func (d *destinationCache) list() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]string, 0, len(d.names))
	for n := range d.names {
		if !store.System(n) {
			out = append(out, n)
		}
	}
	sort.Strings(out)
	return out
}

// Destination is an API that workers have served.
type Destination struct {
	Name string `json:"name"`
	// SeenAt is the last heartbeat of a worker that serves it; zero if it is known from the
	// configuration only.
	SeenAt time.Time `json:"seen_at"`
}

// Destinations lists the destinations that are known from WithDestinations or that workers
// have registered, by name, without Tidegate's own.
func (c *Client) Destinations(ctx context.Context) ([]Destination, error) {
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return nil, err
	}
	var out []Destination
	for _, n := range c.known.list() {
		out = append(out, Destination{Name: n, SeenAt: seen[n]})
	}
	return out, nil
}

// Destination returns one known destination, also one of Tidegate's own once a worker has
// served it. Errors: ErrUnknownDestination, or Redis's.
func (c *Client) Destination(ctx context.Context, name string) (Destination, error) {
	seen, err := c.readDestinations(ctx)
	if err != nil {
		return Destination{}, err
	}
	if !c.known.has(name) {
		return Destination{}, fmt.Errorf("jobs: read destination: %w", &UnknownDestinationError{Name: name, Known: c.known.list()})
	}
	return Destination{Name: name, SeenAt: seen[name]}, nil
}

// readDestinations reads when workers last served each destination, and caches the names.
func (c *Client) readDestinations(ctx context.Context) (map[string]time.Time, error) {
	stored, err := c.rdb.HGetAll(ctx, c.ns.DestinationsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("jobs: read destinations: %w", err)
	}
	c.known.read(stored)
	seen := make(map[string]time.Time, len(stored))
	for n, text := range stored {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			seen[n] = time.UnixMilli(ms).UTC()
		}
	}
	return seen, nil
}

// checkDestination refuses an unknown destination while others are known. Known ones cost
// nothing; the list is read again at most once a second.
func (c *Client) checkDestination(ctx context.Context, name string) error {
	if store.System(name) {
		return checkSystem(ctx, name)
	}
	if c.known.has(name) {
		return nil
	}
	if err := c.refreshDestinations(ctx); err != nil {
		return err
	}
	if c.known.has(name) {
		return nil
	}
	known := c.known.list()
	if len(known) == 0 {
		return nil // publish bounds their number
	}
	return &UnknownDestinationError{Name: name, Known: known}
}

// warnUnknown logs once that jobs were enqueued for an unknown destination.
func (c *Client) warnUnknown(ctx context.Context, name string) {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	if c.known.warned == nil {
		c.known.warned = map[string]bool{}
	}
	if !c.known.warned[name] {
		c.known.warned[name] = true
		c.log.WarnContext(ctx, "no worker has served this destination yet; its jobs wait until one does", "destination", name)
	}
}

// checkExisting refuses a name that is neither a known destination nor has queues.
func (c *Client) checkExisting(ctx context.Context, name string) error {
	if !ValidDestination(name) {
		return &UnknownDestinationError{Name: name, Known: c.known.list()}
	}
	if _, err := c.readDestinations(ctx); err != nil {
		return err
	}
	if c.known.has(name) {
		return nil
	}
	queues, err := c.ourQueues(ctx, true)
	if err != nil {
		return err
	}
	_, err = only(name, withQueues(c.known.list(), queues))
	return err
}

// checkSystem refuses Tidegate's own destinations to applications.
func checkSystem(ctx context.Context, name string) error {
	if store.IsSystem(ctx) {
		return nil
	}
	return &ValidationError{Fields: []FieldError{{"destination", fmt.Sprintf("%q is reserved for Tidegate's own jobs; name one of your destinations", name)}}}
}

// withQueues adds the destinations of the queues to the names, in order and without
// repetitions.
func withQueues(names, queues []string) []string {
	for _, q := range queues {
		if d, _, _ := store.ParseQueue(q); d != "" {
			names = append(names, d)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// only returns the name alone if it is known.
func only(name string, known []string) ([]string, error) {
	if !slices.Contains(known, name) {
		return nil, &UnknownDestinationError{Name: name, Known: withoutSystem(known)}
	}
	return []string{name}, nil
}

// withoutSystem leaves Tidegate's own destinations out.
func withoutSystem(names []string) []string { return slices.DeleteFunc(names, store.System) }

// refreshDestinations reads the list again unless that was done within the last second.
// Concurrent callers wait for the read.
func (c *Client) refreshDestinations(ctx context.Context) error {
	select {
	case c.known.reading <- struct{}{}:
		defer func() { <-c.known.reading }()
	case <-ctx.Done():
		return fmt.Errorf("jobs: read destinations: %w", ctx.Err())
	}
	if c.now().Sub(c.known.readAt) < time.Second {
		return nil
	}
	if _, err := c.readDestinations(ctx); err != nil {
		return err
	}
	c.known.readAt = c.now()
	return nil
}

// UnknownDestinationError lists the known destinations. It matches ErrUnknownDestination, and not
// ErrInvalid.
type UnknownDestinationError struct {
	Name  string
	Known []string
	// Queues is not 0 if no destination is known and the number of queues allows no other for
	// an unknown name.
	Queues int
}

func (e *UnknownDestinationError) Error() string {
	return "destination " + e.problem()
}

func (e *UnknownDestinationError) problem() string {
	if e.Queues > 0 {
		return fmt.Sprintf("%q is not known, none is, and there are %d queues already: start a worker that serves it", clip(e.Name), e.Queues)
	}
	if len(e.Known) == 0 {
		return fmt.Sprintf("%q is not known; none is", clip(e.Name))
	}
	return fmt.Sprintf("%q is not known; known are %s", clip(e.Name), joinSome(e.Known))
}

// Is makes errors.Is(err, ErrUnknownDestination) true.
func (e *UnknownDestinationError) Is(target error) bool { return target == ErrUnknownDestination }

// Refused reports whether err says that nothing was written because of what was asked for: it matches
// ErrInvalid or ErrUnknownDestination, or is a *LateError. With ErrUnknownDestination the job itself may be valid, and
// is accepted once a worker serves its destination.
func Refused(err error) bool {
	_, late := errors.AsType[*LateError](err)
	return late || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnknownDestination)
}

func joinSome(names []string) string {
	const most = 10
	out := ""
	for i, n := range names {
		if i == most {
			return fmt.Sprintf("%s and %d more", out, len(names)-most)
		}
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}
