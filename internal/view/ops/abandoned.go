package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// abandonedFor is how long the same request joins the job of a caller that hung up.
const abandonedFor = time.Minute

// Abandon notes a job of the gateway whose caller hung up, for the next request with the same digest. Errors: Redis's.
func (s *System) Abandon(ctx context.Context, digest, id string) error {
	if err := s.rdb.Set(ctx, s.namespace().AbandonedKey(digest), id, abandonedFor).Err(); err != nil {
		return fmt.Errorf("abandon a job: %w", err)
	}
	return nil
}

// TakeAbandoned returns the id of the job that was abandoned for a digest within the last minute, to one caller; "" if
// there is none. Errors: Redis's.
func (s *System) TakeAbandoned(ctx context.Context, digest string) (id string, err error) {
	id, err = s.rdb.GetDel(ctx, s.namespace().AbandonedKey(digest)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("take an abandoned job: %w", err)
	}
	return id, nil
}
