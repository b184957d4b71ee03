package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// TrimAt is TrimEvents with bounds of its own.
var TrimAt = trim

// MoveSteps does the first steps of a move: 1 creates the job, 2 removes it too, 3
// starts it too.
func MoveSteps(ctx context.Context, rdb redis.UniversalClient, from, to, id string, steps int) error {
	m := mover{rdb: rdb, from: from, to: to, by: "a test"}
	jobs, err := m.read(ctx, []string{id})
	if err == nil {
		_, err = m.announce(ctx, jobs)
	}
	if err == nil {
		jobs, err = m.read(ctx, []string{id})
	}
	if err == nil {
		_, err = m.create(ctx, jobs)
	}
	if err != nil || steps == 1 {
		return err
	}
	if err = m.copyChildren(ctx, jobs); err != nil {
		return err
	}
	removed, err := m.remove(ctx, jobs)
	if err != nil || steps == 2 {
		return err
	}
	return m.settle(ctx, jobs, removed)
}

// CopyChildren copies the children of a job that moves.
func CopyChildren(ctx context.Context, rdb redis.UniversalClient, from, to, id string) error {
	m := mover{rdb: rdb, from: from, to: to}
	jobs, err := m.read(ctx, []string{id})
	if err != nil {
		return err
	}
	return m.copyChildren(ctx, jobs)
}

// ChildrenReleased removes children from their parent.
var ChildrenReleased = childrenReleasedScript
