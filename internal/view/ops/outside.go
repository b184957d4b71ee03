package ops

import (
	"context"

	"github.com/tidegate/tidegate/jobs"
)

// Complete takes the result of a job from outside, or a part of it; see [jobs.Client.Complete]. It is in the history of
// the job and not in the audit: programs report results, and progress often.
func (s *System) Complete(ctx context.Context, id string, result jobs.Completion, why Why) (jobs.ActResult, error) {
	defer s.forget()
	return s.client.Complete(ctx, id, result, jobs.By(why.By))
}

// CompleteByToken is Complete with the token of a callback.
func (s *System) CompleteByToken(ctx context.Context, token string, result jobs.Completion) (jobs.ActResult, error) {
	r, err := s.client.CompleteByToken(ctx, token, result)
	if r.Done { // strangers do not make pages read figures again
		s.forget()
	}
	return r, err
}

// forget has the next look at figures read them again.
func (s *System) forget() {
	if s.cache != nil {
		s.cache.Forget()
	}
}
