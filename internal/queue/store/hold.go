package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	holdScript     = script("hold")
	heldKeysScript = script("held_keys")
)

// HeldKeys are the keys of a queue that hold jobs, as far as a worker needs them.
type HeldKeys struct {
	Any  bool           // whether there are any
	Due  []string       // due keys, the next one first; ten at most
	Next *time.Duration // until the next of the others is due; nil without others
	// Turns is how many jobs of keys that take turns there are, at least.
	Turns int
}

func heldKeysOf(reply []any) HeldKeys {
	if len(reply) == 0 {
		return HeldKeys{}
	}
	k := HeldKeys{Any: true}
	if text, _ := reply[0].(string); text != "" {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
			next := Duration(ms)
			k.Next = &next
		}
	}
	if len(reply) == 1 {
		return k
	}
	turns, _ := reply[1].(int64)
	k.Turns = int(turns)
	for _, v := range reply[2:] {
		if key, ok := v.(string); ok {
			k.Due = append(k.Due, key)
		}
	}
	return k
}

// HeldJob is a fetched job to hold.
type HeldJob struct {
	ID, Key, Place string
	// Until says when a worker may ask for the key again, by the local clock. Zero: the key's
	// time stays.
	Until time.Time
}

// Hold holds jobs of one run, and returns how many are held. children is true if one of them
// was cancelled meanwhile and has children. Errors: Redis's.
func Hold(ctx context.Context, rdb redis.Scripter, queue, run string, jobs []HeldJob) (held int, children bool, err error) {
	args := make([]any, 0, 2+4*len(jobs))
	args = append(args, queue, run)
	for _, j := range jobs {
		ms := any("")
		if !j.Until.IsZero() {
			ms = Millis(time.Until(j.Until))
		}
		args = append(args, j.ID, j.Key, j.Place, ms)
	}
	v, err := valuesOf(holdScript.Run(ctx, rdb, []string{ActiveKey(queue), LeaseKey(queue)}, args...))
	if err != nil {
		return 0, false, fmt.Errorf("hold jobs of %s: %w", queue, err)
	}
	return v.integer(), v.integer() == 1, v.err
}

// HeldAmong returns which of the keys hold jobs. Errors: Redis's.
func HeldAmong(ctx context.Context, rdb redis.Cmdable, queue string, keys []string) (map[string]bool, error) {
	times, err := rdb.ZMScore(ctx, HeldIndexKey(queue), keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("held keys of %s: %w", queue, err)
	}
	held := map[string]bool{}
	for i, at := range times {
		if at != 0 { // of a key that is not there
			held[keys[i]] = true
		}
	}
	return held, nil
}

// HeldKeyTime says in how many milliseconds a worker may ask for a held key again.
type HeldKeyTime struct {
	Key string
	In  int64
}

// SetHeldKeys sets when workers may ask for held keys again, for up to a thousand of all others at once if all is
// true, and returns the keys that are due then. Errors: Redis's.
func SetHeldKeys(ctx context.Context, rdb redis.Scripter, queue string, all bool, times []HeldKeyTime) (HeldKeys, error) {
	args := make([]any, 0, 2+2*len(times))
	args = append(args, queue, flag(all))
	for _, t := range times {
		args = append(args, t.Key, t.In)
	}
	reply, err := heldKeysScript.Run(ctx, rdb, []string{HeldIndexKey(queue)}, args...).Slice()
	if err == nil && len(reply) == 0 {
		err = errReply
	}
	if err != nil {
		return HeldKeys{}, fmt.Errorf("held keys of %s: %w", queue, err)
	}
	return heldKeysOf(reply), nil
}
