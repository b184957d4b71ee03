package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/google/uuid"
)

// Bounds of one round trip of a bulk enqueue.
const (
	jobsPerRequest  = 1000
	bytesPerRequest = 4 << 20
)

// Result is the result of one job: either Job or Err. An Err that is not Refused
// comes from Redis or the context: the job may or may not have been accepted, unless it
// matches ErrNotSent.
type Result struct {
	Job *Job
	Err error
}

// Enqueue accepts one job. It costs what asynq's own enqueue costs: one round
// trip. Errors match ErrInvalid (see ValidationError) or ErrUnknownDestination (nothing was written), or
// come from Redis or the context, in which case the job may or may not have been
// accepted: an enqueue with an ID can be repeated safely.
func (c *Client) Enqueue(ctx context.Context, s *Spec) (*Job, error) {
	results, err := c.EnqueueMany(ctx, []*Spec{s})
	if err != nil {
		return nil, err
	}
	return results[0].Job, results[0].Err
}

// prepared is a valid, encoded job.
type prepared struct {
	index   int
	job     *Job
	queue   string
	encoded store.NewJob
	given   bool // the id was given, so it may exist

	ownParents bool

	endTrace func(error) // may be nil
}

// EnqueueMany accepts many jobs in few round trips, in the order given. A job that is not
// valid has an Err in its Result and stops no other. The returned error concerns all of them:
// results then hold the jobs accepted before it, and the others have an Err each.
func (c *Client) EnqueueMany(ctx context.Context, specs []*Spec) ([]Result, error) {
	results, err := c.enqueueMany(ctx, specs)
	if err == nil {
		return results, nil
	}
	for i := range results {
		if r := &results[i]; r.Job == nil && r.Err == nil {
			r.Err = fmt.Errorf("jobs: enqueue: %w: %w", ErrNotSent, err)
		}
	}
	return results, err
}

func (c *Client) enqueueMany(ctx context.Context, specs []*Spec) ([]Result, error) {
	results, behind := make([]Result, len(specs)), newBehind(specs)
	if portionOf(specs) == len(specs) {
		p := c.preparePortion(ctx, specs, results, behind)
		err := c.sendPortion(ctx, p, results)
		p.endTraces(results, err)
		return results, err
	}
	// Check and encode the next portion while one is being sent.
	ctx, cancel := context.WithCancel(ctx)
	portions := make(chan *portion)
	var preparing sync.WaitGroup
	preparing.Go(func() {
		defer close(portions)
		for from := 0; from < len(specs); {
			to := from + portionOf(specs[from:])
			p := c.preparePortion(ctx, specs[from:to], results[from:to], behind)
			p.shift(from)
			from = to
			select {
			case portions <- p:
			case <-ctx.Done():
				p.endTraces(results, ctx.Err())
				return
			}
		}
	})
	defer preparing.Wait()
	defer cancel()
	for p := range portions {
		err := c.sendPortion(ctx, p, results)
		p.endTraces(results, err)
		if err != nil {
			return results, err
		}
	}
	if err := ctx.Err(); err != nil {
		return results, fmt.Errorf("jobs: enqueue: %w", err)
	}
	return results, nil
}

// portionOf returns how many of the first jobs share a request.
func portionOf(specs []*Spec) int {
	size := 0
	for i, s := range specs {
		if i == jobsPerRequest {
			return i
		}
		if s != nil {
			size += len(s.Payload)
		}
		if size > bytesPerRequest && i > 0 {
			return i
		}
	}
	return len(specs)
}

// portion is a part of the jobs of EnqueueMany, ready to be sent.
type portion struct {
	byQueue map[string][]*prepared
	order   []string // of the queues
	// children have parents, perhaps among the others or the earlier children: they come
	// last.
	children []*prepared
	given    []*prepared
	traced   []*prepared
	err      error // concerns all of EnqueueMany
}

func (p *portion) shift(by int) {
	for _, ps := range p.byQueue {
		for _, one := range ps {
			one.index += by
		}
	}
	for _, one := range p.children {
		one.index += by
	}
}

// preparePortion encodes the valid jobs and fills in the errors of the others.
func (c *Client) preparePortion(ctx context.Context, specs []*Spec, results []Result, behind *behind) *portion {
	out := &portion{byQueue: map[string][]*prepared{}}
	now := c.now()
	for i, s := range specs {
		p, err := c.prepare(ctx, s, now)
		if err != nil {
			err = fmt.Errorf("jobs: enqueue: %w", err)
			if !Refused(err) {
				out.err = err
				return out
			}
			results[i].Err = err
			continue
		}
		if err := c.checkLate(ctx, s, p.job, behind); err != nil {
			err = fmt.Errorf("jobs: enqueue: %w", err)
			if results[i].Err = err; !Refused(err) {
				results[i].Err, out.err = nil, err
			}
			if p.endTrace != nil {
				p.endTrace(err)
			}
			if out.err != nil {
				return out
			}
			continue
		}
		behind.add(p)
		p.index = i
		if p.endTrace != nil {
			out.traced = append(out.traced, p)
		}
		// Ids of Tidegate's own jobs are made for one queue.
		if p.given && !store.System(p.job.Destination) {
			out.given = append(out.given, p)
		}
		if len(p.job.After) > 0 {
			out.children = append(out.children, p)
			continue
		}
		if out.byQueue[p.queue] == nil {
			out.order = append(out.order, p.queue)
		}
		out.byQueue[p.queue] = append(out.byQueue[p.queue], p)
	}
	return out
}

// sendPortion enqueues a prepared portion.
func (c *Client) sendPortion(ctx context.Context, p *portion, results []Result) error {
	if p.err != nil {
		return p.err
	}
	elsewhere, err := c.findElsewhere(ctx, p.given)
	if err != nil {
		return fmt.Errorf("jobs: enqueue: look up given ids: %w", err)
	}
	duplicates, err := c.send(ctx, p.order, p.byQueue, elsewhere, results)
	if err != nil {
		return fmt.Errorf("jobs: enqueue: %w", err)
	}
	found, err := c.sendChildren(ctx, p.children, elsewhere, results)
	if err != nil {
		return fmt.Errorf("jobs: enqueue: %w", err)
	}
	duplicates = append(duplicates, found...)
	if err := c.answerDuplicates(ctx, duplicates, results); err != nil {
		return fmt.Errorf("jobs: enqueue: look up given ids: %w", err)
	}
	if err := c.registerAgain(ctx, duplicates, results); err != nil {
		return fmt.Errorf("jobs: enqueue: %w", err)
	}
	return nil
}

// prepare validates a spec and encodes it.
func (c *Client) prepare(ctx context.Context, s *Spec, now time.Time) (*prepared, error) {
	if err := s.Validate(c.limits, c.check); err != nil {
		return nil, err
	}
	if err := c.checkDestination(ctx, s.Destination); err != nil {
		return nil, err
	}
	id := s.ID
	if id == "" {
		u, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("make an id: %w", err)
		}
		id = u.String()
	}
	job := &Job{
		ID: id, Destination: s.Destination, Key: s.Key, Status: Pending, Priority: s.Priority, Order: s.Order,
		Payload: s.Payload, Request: s.Request, MaxReschedules: s.MaxReschedules,
		Batch: s.Batch, After: unique(s.After), Replace: s.Replace, Cost: 1, Gateway: s.Gateway, KeepResponse: s.KeepResponse,
		OnSuccess: s.OnSuccess, OnFailure: s.OnFailure,
		CreatedAt: now.UTC().Truncate(time.Millisecond),
	}
	if s.Retry != nil {
		policy := s.Retry.withDefaults() // the spec may be used again
		job.Retry = &policy
	}
	job.Priority = cmp.Or(job.Priority, PriorityDefault)
	if s.Cost != nil {
		job.Cost = *s.Cost
	}
	job.Costs, job.Labels = maps.Clone(s.Costs), maps.Clone(s.Labels)
	if s.ID != "" {
		job.Owner = s.Owner
	}
	job.AvailableAt = job.CreatedAt
	more, err := moreOf(job, s, now)
	if err != nil {
		return nil, err
	}
	headers, err := headersOf(job)
	if err != nil {
		return nil, err
	}
	p := &prepared{
		job: job, queue: c.ns.Queue(job.Destination, store.Priority(job.Priority)), given: s.ID != "" && !s.Fresh,
		ownParents: s.OwnParents,
		endTrace:   c.startTrace(ctx, job),
	}
	maps.Copy(headers, job.Trace)
	msg := store.Message{
		Type: store.TaskType, Payload: job.Payload, Headers: headers, ID: id, Queue: p.queue,
		Retry: store.MaxRetry, Timeout: store.TaskTimeout, Retention: int64(c.retention / time.Second),
	}
	p.encoded = store.NewJob{
		ID: id, Message: msg.AppendTo(make([]byte, 0, len(job.Payload)+160)), More: more,
		Bytes: len(job.Payload), Parents: len(job.After), Replaces: s.Replace != "",
	}
	return p, nil
}

// headersOf returns the values that never change after the enqueue.
func headersOf(j *Job) (h map[string]string, err error) {
	h = make(map[string]string, 4)
	set := func(name, value string) {
		if value != "" {
			h[name] = value
		}
	}
	encode := func(name, what string, value any) {
		b, failed := json.Marshal(value)
		if failed != nil {
			err = fmt.Errorf("encode %s: %w", what, failed)
		}
		set(name, string(b))
	}
	set(store.HeaderCreated, strconv.FormatInt(j.CreatedAt.UnixMilli(), 10))
	set(store.HeaderKey, j.Key)
	set(store.HeaderMethod, j.Request.Method)
	set(store.HeaderPath, j.Request.Path)
	set(store.HeaderQuery, j.Request.Query)
	set(store.HeaderEncoding, string(j.Request.Encoding))
	set(store.HeaderBatch, j.Batch)
	set(store.HeaderOrder, string(j.Order))
	set(store.HeaderReplace, j.Replace)
	if j.Edits > 0 {
		set(store.HeaderEdits, strconv.Itoa(j.Edits))
	}
	set(store.HeaderOwner, j.Owner)
	set(store.HeaderOnSuccess, j.OnSuccess)
	set(store.HeaderOnFailure, j.OnFailure)
	if j.KeepResponse {
		set(store.HeaderGateway, "1")
	} else if j.Gateway {
		set(store.HeaderGateway, "0")
	}
	if len(j.After) > 0 {
		encode(store.HeaderAfter, "parents", j.After)
	}
	if j.MaxReschedules != nil {
		set(store.HeaderMaxReschedules, strconv.Itoa(*j.MaxReschedules))
	}
	if j.Cost != 1 {
		set(store.HeaderCost, strconv.Itoa(j.Cost))
	}
	if len(j.Costs) > 0 {
		encode(store.HeaderCosts, "costs", j.Costs)
	}
	if len(j.Labels) > 0 {
		encode(store.HeaderLabels, "labels", j.Labels)
	}
	if j.Request.TimeoutSecs != 0 {
		set(store.HeaderTimeout, strconv.Itoa(j.Request.TimeoutSecs))
	}
	if len(j.Request.Headers) > 0 {
		encode(store.HeaderHeaders, "headers", j.Request.Headers)
	}
	if j.Retry != nil {
		encode(store.HeaderRetry, "retry policy", j.Retry)
	}
	return h, err
}
