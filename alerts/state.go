package alerts

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/base/lease"
	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// keep is how long a record outlives its last change.
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

//go:embed lua/save.lua
var saveLua string

var saveScript = redis.NewScript(saveLua)

// record is what a notifier has sent of the last thread of a subject.
type record struct {
	thread
	// Root is where the first notice is.
	Root notice.Root `json:"root"`
	// Posted, Paged and Recovered are true once message, page and recovery were sent. Raised is true once the page was
	// tried, since it may have arrived. Done is true once everything was sent.
	Posted    bool `json:"posted,omitempty"`
	Raised    bool `json:"raised,omitempty"`
	Paged     bool `json:"paged,omitempty"`
	Recovered bool `json:"recovered,omitempty"`
	Done      bool `json:"done,omitempty"`
	// Retrying is the job that repeats what has failed, until when the others leave that to it.
	Retrying      string    `json:"retrying,omitempty"`
	RetryingUntil time.Time `json:"retrying_until,omitzero"`
	// Blocked is true if what is to be sent fails until an operator changes something.
	Blocked bool `json:"blocked,omitempty"`
}

// recordKey is the key of a subject's record.
func (s stateStore) recordKey(notifier, subject string) string {
	return s.key("record", notifier, subject)
}

// record reads a record, the zero one if there is none.
func (s stateStore) record(ctx context.Context, name string) (record, error) {
	raw, err := s.rdb.Get(ctx, name).Bytes()
	if errors.Is(err, redis.Nil) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("alerts: read %s: %w", name, err)
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil { // alerting has to go on
		s.log.WarnContext(ctx, "a record of alerting cannot be read and is ignored", "key", name, "error", err)
		return record{}, nil
	}
	return r, nil
}

// errLocked is the error while another job sends to the same thread.
var errLocked = errors.New("another worker holds the lock")

// lockFor is how long a lock is held without a heartbeat: longer than a notifier's calls.
const lockFor = 2*notice.CallTimeout + 5*time.Second

// lock lets one worker at a time send a notifier's notices of a subject.
type lock struct {
	s     stateStore
	name  string
	token string
}

func (s stateStore) lock(ctx context.Context, name, holder string) (*lock, error) {
	// A job that was taken back from a worker which stalled may run twice.
	token := fmt.Sprintf("%s %016x", holder, rand.Uint64()) //nolint:gosec // it has to be unique, not secret
	ok, err := lease.Acquire(ctx, s.rdb, name, token, lockFor)
	return &lock{s, name, token}, held(ok, err)
}

// extend must be called before each call of a service: it makes sure that no other process
// sends meanwhile.
func (l *lock) extend(ctx context.Context) error {
	return held(lease.Extend(ctx, l.s.rdb, l.name, l.token, lockFor))
}

// save writes a value while the lock is held: the next holder knows better.
func (l *lock) save(ctx context.Context, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("alerts: write %s: %w", name, err)
	}
	return held(saveScript.Run(ctx, l.s.rdb, []string{l.name, name}, l.token, raw, keep.Milliseconds()).Bool())
}

func held(ok bool, err error) error {
	if err != nil {
		return fmt.Errorf("alerts: lock: %w", err)
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

// once returns true for the first worker that asks within a period.
func (s stateStore) once(ctx context.Context, period time.Duration, what ...string) (bool, error) {
	ok, err := lease.Once(ctx, s.rdb, s.key(append([]string{"limit"}, what...)...), period)
	if err != nil {
		return false, fmt.Errorf("alerts: limit: %w", err)
	}
	return ok, nil
}

// turnedKept is how long it is kept that a condition holds, after the last look that found it so.
const turnedKept = 7 * 24 * time.Hour

// turn keeps whether a condition holds, and calls tell when that has changed, with since when it has held.
func (s stateStore) turn(ctx context.Context, key string, on bool, now time.Time, tell func(since time.Time)) error {
	since := now
	var changed bool
	var err error
	if on {
		changed, err = s.rdb.SetNX(ctx, key, now.Unix(), turnedKept).Result()
		if err == nil && !changed {
			err = s.rdb.Expire(ctx, key, turnedKept).Err()
		}
	} else {
		var at int64
		if at, err = s.rdb.GetDel(ctx, key).Int64(); errors.Is(err, redis.Nil) {
			return nil
		}
		since, changed = time.Unix(at, 0), true
	}
	if err == nil && changed {
		tell(since)
	}
	return err
}

// refusal is one refusal of an API.
type refusal struct {
	At          time.Time     `json:"at"`
	Destination string        `json:"destination"`
	Key         string        `json:"key,omitempty"`
	Kind        string        `json:"kind"` // of incidents that it explains: limited, down or tokenRefused
	Job         string        `json:"job"`
	Status      int           `json:"status,omitempty"` // 0 without an HTTP response
	Body        string        `json:"body,omitempty"`   // the beginning, cleaned
	RetryAfter  time.Duration `json:"retry_after,omitempty"`
}

// maxAnswers is how many refusals of an API are kept for a breaker.
const maxAnswers = 3

// addAnswers keeps refusals as the reason of an incident.
func (s stateStore) addAnswers(ctx context.Context, lists map[string][]refusal) error {
	if len(lists) == 0 {
		return nil
	}
	_, err := redispipe.Run(ctx, s.rdb, func(pipe redis.Pipeliner) error {
		for _, list := range lists {
			for _, x := range list {
				raw, err := json.Marshal(x)
				if err != nil {
					return err
				}
				names := []string{x.Destination}
				if x.Key != "" {
					names = append(names, x.Destination+"/"+x.Key)
				}
				for _, n := range names {
					k := s.key("answers", x.Kind, n)
					pipe.LPush(ctx, k, raw)
					pipe.LTrim(ctx, k, 0, maxAnswers-1)
					pipe.Expire(ctx, k, 24*time.Hour)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("alerts: keep answers: %w", err)
	}
	return nil
}

// answers returns the last refusals that explain a thread of a kind, the newest first: some came before it opened.
func (s stateStore) answers(ctx context.Context, kind, name string, t *thread) ([]refusal, error) {
	raw, err := s.rdb.LRange(ctx, s.key("answers", kind, name), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("alerts: read answers: %w", err)
	}
	var out []refusal
	for _, r := range raw {
		var x refusal
		if json.Unmarshal([]byte(r), &x) == nil && !x.At.Before(t.Since.Add(-10*time.Minute)) && !x.At.Before(t.Previous) {
			out = append(out, x)
		}
	}
	return out, nil
}
