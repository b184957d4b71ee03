package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

// keyIncidents are incidents of keys, by destination and id.
type keyIncidents map[string]map[string]keyIncident

// While one lasts, its counts are 0: the breaker knows them.
type keyIncident struct {
	ended bool
	counts
}

// add adds more; final ones stay.
func (k keyIncidents) add(more keyIncidents) {
	for destination, incidents := range more {
		of := k[destination]
		if of == nil {
			of = map[string]keyIncident{}
			k[destination] = of
		}
		for id, in := range incidents {
			if was, known := of[id]; (known || len(of) < maxTriggers) && !was.ended {
				of[id] = in
			}
		}
	}
}

// keysSeen counts the incidents of keys in a thread.
type keysSeen struct {
	Incidents int
	counts
}

// addKeys keeps incidents of keys, for the message about all of them.
func (s stateStore) addKeys(ctx context.Context, keys keyIncidents) error {
	if len(keys) == 0 {
		return nil
	}
	_, err := redispipe.Run(ctx, s.rdb, func(pipe redis.Pipeliner) error {
		for destination, incidents := range keys {
			k := s.key("keys-seen", destination)
			for id, in := range incidents {
				raw, err := json.Marshal(in.counts)
				if err != nil {
					return err
				}
				if in.ended {
					pipe.HSet(ctx, k, id, raw)
				} else {
					pipe.HSetNX(ctx, k, id, raw) // another worker may know how it ended
				}
			}
			pipe.Expire(ctx, k, 24*time.Hour)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("alerts: count incidents of keys: %w", err)
	}
	return nil
}

// seenKeys counts what addKeys has kept.
func (s stateStore) seenKeys(ctx context.Context, destination string) (keysSeen, error) {
	seen := map[string]string{} // a scan may return an entry twice
	for cursor := uint64(0); ; {
		entries, next, err := s.rdb.HScan(ctx, s.key("keys-seen", destination), cursor, "", 500).Result()
		if err != nil {
			return keysSeen{}, fmt.Errorf("alerts: count incidents of keys: %w", err)
		}
		for i := 0; i+1 < len(entries); i += 2 {
			seen[entries[i]] = entries[i+1]
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	sum := keysSeen{Incidents: len(seen)}
	for _, v := range seen {
		var c counts
		if err := json.Unmarshal([]byte(v), &c); err == nil {
			sum.counts = sum.plus(c)
		}
	}
	return sum, nil
}

func (s stateStore) forgetKeys(ctx context.Context, destination string) error {
	if err := s.rdb.Unlink(ctx, s.key("keys-seen", destination)).Err(); err != nil {
		return fmt.Errorf("alerts: count incidents of keys: %w", err)
	}
	return nil
}
