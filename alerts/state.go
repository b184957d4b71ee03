package alerts

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/lease"
	"github.com/tidegate/tidegate/internal/redispipe"
	"github.com/tidegate/tidegate/internal/store"
)

// keep is how long what is known of a subject, and what was sent of it, outlives its
// last change.
const keep = 30 * 24 * time.Hour

// stateStore keeps in Redis what the alerting of all workers has in common. All of its keys share
// one slot with the queue that delivers.
type stateStore struct {
	rdb redis.UniversalClient
	ns  store.Namespace
	log *slog.Logger
}

func (s stateStore) key(parts ...string) string {
	return s.ns.SlotKey(store.AlertsDestination, strings.Join(parts, ":"))
}

var (
	//go:embed lua/swap.lua
	swapLua string
	//go:embed lua/save.lua
	saveLua string
	//go:embed lua/burst.lua
	burstLua string

	swapScript  = redis.NewScript(swapLua)
	saveScript  = redis.NewScript(saveLua)
	burstScript = redis.NewScript(burstLua)
)

// load reads a value, the zero one if there is none. It returns it as it is written, too.
func load[V any](ctx context.Context, s stateStore, name string) (v *V, raw string, err error) {
	raw, err = s.rdb.Get(ctx, name).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, "", fmt.Errorf("alerts: read %s: %w", name, err)
	}
	v = new(V)
	if raw == "" {
		return v, raw, nil
	}
	if err := json.Unmarshal([]byte(raw), v); err != nil {
		// Alerting has to go on.
		s.log.WarnContext(ctx, "a record of alerting cannot be read and is ignored", "key", name, "error", err)
		v = new(V) // not half of it
	}
	return v, raw, nil
}

// swapTries bounds how often change is tried against other processes.
const swapTries = 50

// change reads a value into a new V, lets f change it, and writes it if f returns true and
// no other process has written meanwhile; else it begins anew. It returns the value. What f
// takes into it must be read by f: what was read before may be older than the value.
func change[V any](ctx context.Context, s stateStore, name string, f func(*V) (bool, error)) (*V, error) {
	for range swapTries {
		v, raw, err := load[V](ctx, s, name)
		if err != nil {
			return nil, err
		}
		if changed, err := f(v); err != nil || !changed {
			return v, err
		}
		next, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("alerts: write %s: %w", name, err)
		}
		ok, err := swapScript.Run(ctx, s.rdb, []string{name}, raw, next, keep.Milliseconds()).Bool()
		if err != nil {
			return nil, fmt.Errorf("alerts: write %s: %w", name, err)
		}
		if ok {
			return v, nil
		}
	}
	return nil, fmt.Errorf("alerts: write %s: other workers change it all the time", name)
}

// errLocked is the error while another job sends to the same thread.
var errLocked = errors.New("another worker holds the lock")

// lockFor is how long a lock is held without a heartbeat: longer than any call that is made
// under it.
const lockFor = notice.CallTimeout + 5*time.Second

// lock lets one worker at a time send notices of a subject.
type lock struct {
	s     stateStore
	name  string
	token string
}

func (s stateStore) lock(ctx context.Context, name, holder string) (*lock, error) {
	// A job that was taken back from a worker which stalled may run twice.
	token := fmt.Sprintf("%s %016x", holder, rand.Uint64()) //nolint:gosec // it has to be unique, not secret
	ok, err := lease.Acquire(ctx, s.rdb, name, token, lockFor)
	if err != nil {
		return nil, fmt.Errorf("alerts: lock: %w", err)
	}
	if !ok {
		return nil, errLocked
	}
	return &lock{s, name, token}, nil
}

// extend must be called before each call of a service: it makes sure that no other process
// sends meanwhile.
func (l *lock) extend(ctx context.Context) error {
	ok, err := lease.Extend(ctx, l.s.rdb, l.name, l.token, lockFor)
	if err != nil {
		return fmt.Errorf("alerts: extend lock: %w", err)
	}
	if !ok {
		return errLocked
	}
	return nil
}

// save writes a value while the lock is held: the next holder knows better.
func (l *lock) save(ctx context.Context, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("alerts: write %s: %w", name, err)
	}
	ok, err := saveScript.Run(ctx, l.s.rdb, []string{l.name, name}, l.token, raw, keep.Milliseconds()).Bool()
	if err != nil {
		return fmt.Errorf("alerts: write %s: %w", name, err)
	}
	if !ok {
		return errLocked
	}
	return nil
}

// unlock releases the lock also if ctx has ended.
func (l *lock) unlock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = lease.Release(ctx, l.s.rdb, l.name, l.token) // else it ends by itself
}

// unclaim releases leases that a job may hold.
func (s stateStore) unclaim(ctx context.Context, holder string, names ...string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, lease.Release(ctx, s.rdb, name, holder))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("alerts: release a claim: %w", err)
	}
	return nil
}

// once returns true for the first worker that asks within a period.
func (s stateStore) once(ctx context.Context, period time.Duration, what ...string) (bool, error) {
	ok, err := lease.Once(ctx, s.rdb, s.key(append([]string{"limit"}, what...)...), period)
	if err != nil {
		return false, fmt.Errorf("alerts: limit: %w", err)
	}
	return ok, nil
}

// done returns whether a worker has asked within the period.
func (s stateStore) done(ctx context.Context, what ...string) (bool, error) {
	n, err := s.rdb.Exists(ctx, s.key(append([]string{"limit"}, what...)...)).Result()
	if err != nil {
		return false, fmt.Errorf("alerts: limit: %w", err)
	}
	return n > 0, nil
}

// failed counts n failed jobs of a destination and returns how many there were within
// the time.
func (s stateStore) failed(ctx context.Context, destination string, n int, within time.Duration) (int, error) {
	sum, err := burstScript.Run(ctx, s.rdb, []string{s.key("failed", destination)}, n, within.Milliseconds()).Int()
	if err != nil {
		return 0, fmt.Errorf("alerts: count failed jobs: %w", err)
	}
	return sum, nil
}

// maxAnswers is how many refusals of an API are kept for a breaker.
const maxAnswers = 3

// addAnswer keeps a refusal as the reason of an incident.
func (s stateStore) addAnswer(ctx context.Context, a refusal) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("alerts: keep an answer: %w", err)
	}
	names := []string{a.Destination}
	if a.Key != "" {
		names = append(names, a.Destination+"/"+a.Key)
	}
	_, err = redispipe.Run(ctx, s.rdb, func(pipe redis.Pipeliner) error {
		for _, name := range names {
			k := s.key("answers", name)
			pipe.LPush(ctx, k, raw)
			pipe.LTrim(ctx, k, 0, maxAnswers-1)
			pipe.Expire(ctx, k, 24*time.Hour)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("alerts: keep an answer: %w", err)
	}
	return nil
}

// answers returns the last refusals, the newest first.
func (s stateStore) answers(ctx context.Context, name string) ([]refusal, error) {
	raw, err := s.rdb.LRange(ctx, s.key("answers", name), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("alerts: read answers: %w", err)
	}
	var out []refusal
	for _, r := range raw {
		var a refusal
		if json.Unmarshal([]byte(r), &a) == nil {
			out = append(out, a)
		}
	}
	return out, nil
}

// firstRun is since when there has been alerting without a gap of an hour: what ended
// before is not reported.
func (s stateStore) firstRun(ctx context.Context, now time.Time) (time.Time, error) {
	k := s.key("since")
	if err := swapScript.Run(ctx, s.rdb, []string{k}, "", now.UnixMilli(), time.Hour.Milliseconds()).Err(); err != nil {
		return time.Time{}, fmt.Errorf("alerts: write since when: %w", err)
	}
	var since *redis.StringCmd
	_, err := redispipe.Run(ctx, s.rdb, func(pipe redis.Pipeliner) error {
		pipe.Expire(ctx, k, time.Hour)
		since = pipe.Get(ctx, k)
		return nil
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("alerts: read since when: %w", err)
	}
	ms, err := strconv.ParseInt(since.Val(), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("alerts: read since when: %w", err)
	}
	return time.UnixMilli(ms), nil
}
