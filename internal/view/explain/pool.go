package explain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// byPool explains that every token of the destination's pool holds calls back; nil if one does not, or without a pool.
func (e *Explainer) byPool(ctx context.Context, job *jobs.Job) (*Waiting, error) {
	members := e.workers.Pool(job.Destination)
	all := make([]breaker.Status, 0, len(members))
	for _, member := range members {
		b, err := e.breaker(ctx, job.Destination+"/"+member)
		if err != nil {
			return nil, err
		}
		all = append(all, forCost(b, job.Cost))
	}
	return poolHolds(all, job.Destination, e.now), nil
}

// poolHolds words what holds the calls of all members; nil if one can be called now.
func poolHolds(members []breaker.Status, destination string, now time.Time) *Waiting {
	if len(members) == 0 {
		return nil
	}
	w := &Waiting{Reason: ByRate}
	refused, closed, full := []string{}, 0, 0
	var soonest time.Time
	for _, b := range members {
		_, name, _ := breaker.ParseName(b.Name)
		var until time.Time
		switch {
		case b.State != breaker.Closed && b.Cause == breaker.CauseCredentials:
			refused, until = append(refused, name), b.OpenUntilRedis
		case b.State == breaker.Open:
			closed, until = closed+1, b.OpenUntilRedis
		case RateHolds(b, now):
			full, until = full+1, b.Rate.Next
		case ConcurrencyHolds(b):
			full++
		case b.State == breaker.Closed && b.Budget != nil && b.Budget.Remaining == 0:
			full, until = full+1, now.Add(b.Budget.Reset)
		default:
			return nil
		}
		if !until.IsZero() && (soonest.IsZero() || until.Before(soonest)) {
			soonest, w.Breaker = until, b.Name
		}
	}
	var parts []string
	if full > 0 {
		parts = append(parts, fmt.Sprintf("%d at %s", full, whose(full, "limit", "limits")))
	}
	if closed > 0 {
		parts = append(parts, fmt.Sprintf("%d held by %s", closed, whose(closed, "breaker", "breakers")))
		w.Reason = BreakerOpen
	}
	if n := len(refused); n > 0 {
		parts = append(parts, fmt.Sprintf("%d refused by the API (%s)", n, strings.Join(refused[:min(n, 5)], ", ")))
		if n == len(members) {
			w.Reason = Credentials
		}
	}
	w.Text = "no token of the pool of " + destination + " has a call left: " + strings.Join(parts, ", ")
	if soonest.After(now) {
		w.Text += "; the next may be called"
		return w.ends(soonest, now)
	}
	return w
}

func whose(n int, one, many string) string {
	if n == 1 {
		return "its " + one
	}
	return "their " + many
}
