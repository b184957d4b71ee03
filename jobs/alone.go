package jobs

import (
	"context"
	"fmt"
	"time"
)

// RefusedAlone are the jobs of a destination that its API refused again and again while it accepted others,
// in this hour of the clock and the one before.
type RefusedAlone struct {
	Jobs     int       `json:"jobs" doc:"How many." example:"3"`
	Refusals int       `json:"refusals" doc:"How often they were refused." example:"11"`
	Failed   int       `json:"failed" doc:"How many of them failed with that." example:"1"`
	Since    time.Time `json:"since" doc:"When the first of these refusals was." example:"2030-01-31T14:35:00Z"`
	Job      string    `json:"job" doc:"Id of the last one." example:"post-7"`
	Text     string    `json:"text" doc:"How often it was refused, and how many other calls were accepted." example:"refused 4 times while 812 other calls were accepted"`
}

// RefusedAlone returns, by destination, the jobs that were refused alone; destinations without any are
// left out. It costs two round trips. Errors: Redis's.
func (c *Client) RefusedAlone(ctx context.Context, destinations ...string) (map[string]RefusedAlone, error) {
	now, err := c.Now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := c.ns.RefusedAlone(ctx, c.rdb, destinations, now)
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	out := map[string]RefusedAlone{}
	for i, r := range found {
		if r.Refusals > 0 {
			out[destinations[i]] = RefusedAlone(r)
		}
	}
	return out, nil
}
