package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// Job is a job, and why it waits.
type Job struct {
	*jobs.Job

	// Waiting is nil if the job runs or has ended; of an accepted one it says until when its API reports the result.
	Waiting *explain.Waiting `json:"waiting"`
	// ETA is when it starts; nil if it runs or has ended, and beyond the first 100 of a list.
	ETA *jobs.ETA `json:"eta"`
	// Redacted is true of what [Job.Redact] returns.
	Redacted bool `json:"redacted,omitempty"`
}

// Redact returns the job without its payload, response, output, progress, query and headers, which may hold secrets.
func (j Job) Redact() Job {
	hidden := *j.Job
	hidden.Payload, hidden.Response, hidden.Output, hidden.Progress, hidden.Request = nil, nil, nil, nil, jobs.Request{
		Method: j.Request.Method, Path: j.Request.Path, Encoding: j.Request.Encoding, TimeoutSecs: j.Request.TimeoutSecs,
	}
	hidden.OnSuccess, hidden.OnFailure = "", ""
	return Job{Job: &hidden, Waiting: j.Waiting, ETA: j.ETA, Redacted: true}
}

// ListedJob is a job in a list: its JSON has no payload and no output.
type ListedJob struct {
	Job

	Payload *json.RawMessage `json:"payload,omitempty"` // hides the job's
	Output  *json.RawMessage `json:"output,omitempty"`  // likewise
}

// Explain says why a job waits, and its place in the queue.
func (s *System) Explain(ctx context.Context, job *jobs.Job) (*explain.Waiting, error) {
	e := explain.New(s.rdb, s.client)
	w, err := e.Waiting(ctx, job)
	if err == nil {
		err = e.Place(ctx, job, w)
	}
	return w, err
}

// Job reads a job. An unknown one is jobs.ErrNotFound.
func (s *System) Job(ctx context.Context, id string) (Job, error) {
	job, err := s.client.Get(ctx, id)
	if err != nil {
		return Job{}, err
	}
	waiting, err := s.Explain(ctx, job)
	if err != nil {
		return Job{}, err
	}
	eta, err := s.eta(ctx, job, waiting)
	return Job{Job: job, Waiting: waiting, ETA: eta}, err
}

func (s *System) eta(ctx context.Context, job *jobs.Job, w *explain.Waiting) (*jobs.ETA, error) {
	p := jobs.Place{}
	if w != nil {
		p = jobs.Place{Ahead: w.Rank, Until: w.Until}
	}
	return s.client.ETA(ctx, job, p)
}

// Enqueued is the answer to an enqueue: after an error of the forecast it has no ETA.
func (s *System) Enqueued(ctx context.Context, job *jobs.Job) Job {
	eta, err := s.eta(ctx, job, nil)
	if err != nil && s.log != nil {
		s.log.DebugContext(ctx, "no forecast of a new job", "job", job.ID, "error", err)
	}
	return Job{Job: job, ETA: eta}
}

// mostForeseen bounds the jobs of a list that have an ETA.
const mostForeseen = 100

// mostKeysExplained bounds the breakers of keys that are read for one page.
const mostKeysExplained = 20

// Jobs returns a page of jobs, the newest first, with why they wait. A destination that is not known is an error,
// a *jobs.UnknownDestinationError, if it has no jobs and others are known.
func (s *System) Jobs(ctx context.Context, o jobs.ListOptions) (page Page[ListedJob], err error) {
	if o.Filter, err = Confine(ctx, o.Filter); err == nil {
		o.Cursor, err = s.sealed(ctx, o.Cursor, true)
	}
	if err != nil {
		return page, err
	}
	found, err := s.client.List(ctx, o)
	if err == nil {
		found.Next, err = s.sealed(ctx, found.Next, false)
	}
	if err != nil {
		return page, err
	}
	if len(found.Items) == 0 && found.Next == "" && o.Cursor == "" {
		if err := s.foundNone(ctx, o.Destination); err != nil {
			return page, err
		}
	}
	why, err := s.explainAll(ctx, found.Items)
	page = Page[ListedJob]{Items: make([]ListedJob, len(why)), Next: found.Next}
	for i, w := range why {
		page.Items[i].Job = Job{Job: found.Items[i], Waiting: w}
	}
	for i := range page.Items[:min(len(page.Items), mostForeseen)] {
		if err != nil {
			break
		}
		item := &page.Items[i]
		if item.Status == jobs.Waiting && !explain.InOrder(item.Job.Job) { // the parents are not read for a list
			item.ETA = &jobs.ETA{Because: "it waits for its parents"}
			continue
		}
		item.ETA, err = s.eta(ctx, item.Job.Job, item.Waiting)
	}
	return page, err
}

// explainAll says why jobs wait, with a bounded number of reads.
func (s *System) explainAll(ctx context.Context, list []*jobs.Job) ([]*explain.Waiting, error) {
	explainer, keys := explain.New(s.rdb, s.client), map[string]bool{}
	out := make([]*explain.Waiting, len(list))
	for i, j := range list {
		if explain.Held(j) {
			key := j.ReasonCode // names its breaker
			if !keys[key] && len(keys) == mostKeysExplained {
				// It is reported as deferred until its time, which is true too.
				plain := *j
				plain.Reason, plain.ReasonCode = "", ""
				j = &plain
			} else {
				keys[key] = true
			}
		}
		var err error
		if out[i], err = explainer.Waiting(ctx, j); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Clock is the time by which jobs become available and expire.
type Clock struct {
	Now time.Time `json:"now" doc:"The time of Redis's clock: available_at, expires_at and next_retry_at are compared with it." example:"2030-01-31T14:35:00.123Z"`
}

// Time reads Redis's clock.
func (s *System) Time(ctx context.Context) (Clock, error) {
	now, err := s.client.Now(ctx)
	return Clock{now}, err
}

// History returns what happened to a job, the oldest first. An unknown one is jobs.ErrNotFound.
func (s *System) History(ctx context.Context, id string) (List[jobs.HistoryEntry], error) {
	return listOf(s.client.History(ctx, id))
}

// Batch is how far a batch is, as of CountedAt.
type Batch struct {
	*jobs.BatchStatus

	CountedAt time.Time `json:"counted_at" doc:"When they were counted." example:"2030-01-31T14:35:00Z"`
}

const (
	// countTimeout bounds one count of a batch. It goes on after its caller's timeout, so that a repeated request
	// finds the result.
	countTimeout = time.Minute
	// countsAtOnce bounds concurrent counts.
	countsAtOnce = 4
)

// countTerms keep a count for ten times as long as it took, and one that was too long likewise. Other errors
// come quickly.
var countTerms = terms{countTimeout, countTimeout, func(took time.Duration, err error) time.Duration {
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return 0
	}
	return max(fresh, 10*took)
}}

// countListed counts the jobs of a batch that a filter selects. It reads each, as the record alone says whose it is.
func (s *System) countListed(ctx context.Context, f jobs.Filter) (*jobs.BatchStatus, error) {
	b, ended, seen := &jobs.BatchStatus{Batch: f.Batch, Counts: map[jobs.Status]int{}}, 0, map[string]bool{}
	for o := (jobs.ListOptions{Filter: f, Limit: jobs.MaxPage}); ; {
		page, err := s.client.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, job := range page.Items {
			if seen[job.ID] { // it has moved meanwhile
				continue
			}
			seen[job.ID] = true
			b.Counts[job.Status]++
			if b.Total++; job.Status.Final() {
				ended++
			}
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	if b.Total == 0 {
		return nil, fmt.Errorf("batch %s: %w", f.Batch, jobs.ErrNotFound)
	}
	b.Progress, b.Done = float64(ended)/float64(b.Total), ended == b.Total
	return b, nil
}

// Batch counts the jobs of a batch that the caller of ctx may see, for which Redis reads each of them: requests for the same batch share a
// count. An unknown batch is jobs.ErrNotFound.
func (s *System) Batch(ctx context.Context, name string) (Batch, error) {
	id, _ := access.From(ctx)
	f, err := Confine(ctx, jobs.Filter{Batch: name})
	if err != nil {
		return Batch{}, err
	}
	shared := f.Batch
	if id.Confined() {
		shared = fmt.Sprintf("%s of %q %q", f.Batch, f.Destinations, f.Keys)
	}
	k, err := s.batches.read(ctx, shared, countTerms, func(ctx context.Context) (any, error) {
		select {
		case s.counts <- struct{}{}:
			defer func() { <-s.counts }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var b *jobs.BatchStatus
		var err error
		if id.Confined() {
			b, err = s.countListed(ctx, f)
		} else {
			b, err = s.client.Batch(ctx, f.Batch)
		}
		return Batch{b, time.Now().UTC()}, err
	})
	if err == nil {
		err = k.err
	}
	if err != nil {
		return Batch{}, err
	}
	return k.value.(Batch), nil //nolint:forcetypeassert // all are
}
