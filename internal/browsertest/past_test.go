package browsertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// past writes what workers would have counted and breakers kept during the last day: jobs
// at the given rate a minute, and incidents that began so long ago.
func (s *site) past(destination string, perMinute int, incidents map[time.Duration]time.Duration) {
	s.t.Helper()
	ctx := s.t.Context()
	now := time.Now().UTC()
	chance := rand.New(rand.NewPCG(7, uint64(len(destination))))
	pipe := s.rdb.Pipeline()
	backlog := 40
	for at := now.Add(-24 * time.Hour).Truncate(time.Minute); at.Before(now); at = at.Add(time.Minute) {
		n := perMinute*3/4 + chance.IntN(perMinute/2+1)
		limited, failed := 0, 0
		for ago, length := range incidents {
			if began := now.Add(-ago); !at.Before(began.Truncate(time.Minute)) && at.Before(began.Add(length)) {
				backlog += n
				n, limited = 0, 1
			}
		}
		if backlog > 60 && limited == 0 {
			catch := min(backlog-40, perMinute)
			n, backlog = n+catch, backlog-catch
		}
		if chance.IntN(9) == 0 {
			failed = chance.IntN(perMinute/12 + 1)
		}
		key := store.DefaultNamespace.MinutesKey(destination, at.Unix()/3600)
		for name, v := range map[string]int{
			"completed": n, "failed": failed, "calls": n + failed + limited, "limited": limited, "backlog": backlog + chance.IntN(12),
		} {
			pipe.HSet(ctx, key, strconv.Itoa(at.Minute())+":"+name, v)
		}
	}
	for ago, length := range incidents {
		began := now.Add(-ago)
		doc, err := json.Marshal(map[string]any{
			"id": fmt.Sprintf("%s-%d", destination, began.UnixMicro()), "name": destination, "started": began.UnixMilli(),
			"ended": began.Add(length).UnixMilli(), "cause": breaker.CauseHint, "ended_by": breaker.CauseSuccess, "reason": "", "by": "",
			"probes": int(length / (5 * time.Minute)), "wasted": 3 + int(length/(5*time.Minute)), "rescheduled": 8, "instances": "pub-1:7,pub-2:7",
		})
		if err != nil {
			s.t.Fatal(err)
		}
		pipe.LPush(ctx, "tidegate:{"+destination+"}:breaker-incidents", doc)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// limit has the destination's breaker, or a key's, hear of a limit.
func (s *site) limit(destination, key string, rules breaker.Options, hint time.Duration) {
	s.t.Helper()
	rules.Destination, rules.Instance = destination, "pub-1:7"
	b, err := breaker.New(s.t.Context(), s.rdb, rules)
	if err != nil {
		s.t.Fatal(err)
	}
	defer b.Close()
	permit, err := b.Key(key).Allow(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := permit.Report(s.t.Context(), breaker.RateLimited(hint)); err != nil {
		s.t.Fatal(err)
	}
}

// fill enqueues many jobs.
func (s *site) fill(n int, opts func(i int) *jobs.Spec) {
	s.t.Helper()
	for from := 0; from < n; from += 5000 {
		var specs []*jobs.Spec
		for i := from; i < min(from+5000, n); i++ {
			specs = append(specs, opts(i))
		}
		results, err := s.client.EnqueueMany(s.t.Context(), specs)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				s.t.Fatal(r.Err)
			}
		}
	}
}
