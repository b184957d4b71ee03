package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// errElsewhere is wrapped by errors of what is out of the bounds of the caller's token: 404.
var errElsewhere = errors.New("out of the token's bounds")

// claim makes a job the caller's: its owner, and of a confined caller the tenant's names. The error says that the job
// would be out of its bounds.
func (a *api) claim(id access.Identity, s *jobs.Spec) error {
	s.Owner = id.Token()
	if id.Bounds.Free() {
		return nil
	}
	if s.ID == "" {
		s.ID, s.Fresh = uuid.Must(uuid.NewV7()).String(), true // the quota needs it before
	}
	s.OwnParents = id.Confined()
	s.ID, s.Batch = id.Own(s.ID), id.Own(s.Batch)
	for i, parent := range s.After {
		s.After[i] = id.Own(parent)
	}
	if err := elsewhere(id, s.Destination, s.Key); err != nil {
		return err
	}
	return s.Validate(a.limits) // a job that is refused takes no quota
}

// elsewhere returns an error if a job would be out of the caller's bounds.
func elsewhere(id access.Identity, destination, key string) error {
	switch {
	case !jobs.ValidDestination(destination): // refused as that
	case !id.Sees(destination):
		return &jobs.UnknownDestinationError{Name: destination}
	case !id.May(destination, key):
		return fmt.Errorf("%w: %w", errElsewhere, &jobs.ValidationError{Fields: []jobs.FieldError{{Field: "key", Message: "is not one of this token's keys"}}})
	}
	return nil
}

// takeQuota takes jobs, or n permits, from the caller's quota, and returns how many. If those are not all, p says why.
func (a *api) takeQuota(ctx context.Context, specs []*jobs.Spec, n int) (taken int, p *Problem) {
	taken, wait, err := a.ops.Take(ctx, specs, n)
	switch {
	case err != nil:
		return taken, a.problem(ctx, "body", err)
	case taken == len(specs)+n:
		return taken, nil
	case wait > 0:
		p = newProblem(http.StatusTooManyRequests, "the rate of this token is used up; try again later")
		p.retryAfter = int((wait + time.Second - 1) / time.Second)
	default:
		p = newProblem(http.StatusTooManyRequests, "this token has as many unfinished jobs as it may have; try again when some have ended")
		p.retryAfter = retrySoon
	}
	return taken, p
}

// find is ops.Find as a path, so that a confined caller reaches its own jobs only.
func (in *JobOnly) find(ctx context.Context, a *api) (err error) {
	in.ID, err = a.ops.Find(ctx, in.ID)
	return err
}
