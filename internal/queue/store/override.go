package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

// Override is an operator's limit, which stands above the configured rate until it ends.
type Override struct {
	Rate   string     `json:"rate" doc:"Its windows, as of DESTINATION_<i>_RATE; off: no limit." example:"5/1s"`
	Until  *time.Time `json:"until" doc:"When it ends; null: when it is unset." example:"2030-01-31T15:00:00Z"`
	By     string     `json:"by" doc:"The operator that set it." example:"token:ann"`
	Reason string     `json:"reason" doc:"Why; empty: not given." example:"the API asked for less"`
	At     time.Time  `json:"at" doc:"When it was set." example:"2030-01-31T14:30:00Z"`
}

// NoRate is the rate of an override that lifts the limit.
const NoRate = "off"

// LimitField is the field of a named limit in OverridesKey. The prefix keeps it apart from a destination of that name.
func LimitField(name string) string { return "limit:" + name }

// OverridesKey is the hash of operators' limits: name, or LimitField → JSON of an Override.
func (n Namespace) OverridesKey() string { return n.Key("overrides") }

// Overrides reads operators' limits that have not ended on Redis's clock, by name, in one round trip.
func (n Namespace) Overrides(ctx context.Context, rdb redis.UniversalClient) (map[string]Override, error) {
	var now *redis.TimeCmd
	var all *redis.MapStringStringCmd
	if _, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		now, all = pipe.Time(ctx), pipe.HGetAll(ctx, n.OverridesKey())
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read operators' limits: %w", err)
	}
	out := map[string]Override{}
	for name, text := range all.Val() {
		var o Override
		if json.Unmarshal([]byte(text), &o) == nil && (o.Until == nil || o.Until.After(now.Val())) {
			out[name] = o
		}
	}
	return out, nil
}

// SetOverride keeps an operator's limit of a name in place of the one before: for that length, for 0 until o.Until, or
// until it is unset. It returns the limit with its times, on Redis's clock.
func (n Namespace) SetOverride(ctx context.Context, rdb redis.UniversalClient, name string, o Override, length time.Duration) (Override, error) {
	now, err := rdb.Time(ctx).Result()
	if err != nil {
		return o, fmt.Errorf("set the limit of %s: %w", name, err)
	}
	o.At = now.UTC().Truncate(time.Millisecond)
	if length > 0 {
		until := o.At.Add(length)
		o.Until = &until
	}
	text, err := json.Marshal(o)
	if err == nil {
		err = rdb.HSet(ctx, n.OverridesKey(), name, text).Err()
	}
	if err != nil {
		return o, fmt.Errorf("set the limit of %s: %w", name, err)
	}
	return o, nil
}

// UnsetOverride ends an operator's limit; found is false if there is none.
func (n Namespace) UnsetOverride(ctx context.Context, rdb redis.UniversalClient, name string) (found bool, err error) {
	all, err := n.Overrides(ctx, rdb)
	if err != nil {
		return false, err
	}
	if err := rdb.HDel(ctx, n.OverridesKey(), name).Err(); err != nil {
		return false, fmt.Errorf("unset the limit of %s: %w", name, err)
	}
	_, found = all[name]
	return found, nil
}
