package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/record"
)

// Get returns the job with the id, from whichever destination. It costs one
// round trip (a second one when the list of queues is older than 5 s).
// Errors: ErrNotFound, or Redis's.
func (c *Client) Get(ctx context.Context, id string) (*Job, error) {
	if !ValidName(id) {
		return nil, fmt.Errorf("jobs: get %q: %w", clip(id), ErrNotFound)
	}
	for _, fresh := range []bool{false, true} {
		queues, err := c.ourQueues(ctx, fresh)
		if err != nil {
			return nil, fmt.Errorf("jobs: get %s: %w", id, err)
		}
		found, err := c.readAll(ctx, queues, []string{id})
		if err != nil {
			return nil, fmt.Errorf("jobs: get %s: %w", id, err)
		}
		if len(found) > 0 {
			return c.expireSeen(ctx, found)[0], nil
		}
	}
	return nil, fmt.Errorf("jobs: get %s: %w", id, ErrNotFound)
}

// readAll looks every id up in every queue, in one pipeline. Ids that exist in
// none of them are left out; the order is that of the ids.
func (c *Client) readAll(ctx context.Context, queues, ids []string) ([]*Job, error) {
	if len(queues) == 0 || len(ids) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.MapStringStringCmd, 0, len(queues)*len(ids))
	_, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			for _, q := range queues {
				cmds = append(cmds, pipe.HGetAll(ctx, record.Task(q, id)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var out, held []*Job
	for _, cmd := range cmds {
		fields := cmd.Val()
		if fields[record.FieldMsg] == "" {
			continue
		}
		j, err := FromRecord(fields)
		if err != nil {
			return nil, err
		}
		out = append(out, j)
		if fields[record.FieldState] == record.StateHeld {
			held = append(held, j)
		}
	}
	if err := c.heldUntil(ctx, held); err != nil {
		return nil, err
	}
	return out, nil
}

// heldUntil reads until when jobs wait that are held because of their keys.
func (c *Client) heldUntil(ctx context.Context, held []*Job) error {
	if len(held) == 0 {
		return nil
	}
	scores := make([]*redis.FloatCmd, len(held))
	if _, err := c.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, j := range held {
			scores[i] = pipe.ZScore(ctx, record.HeldKeys(record.Queue(j.Destination, record.Priority(j.Priority))), j.Key)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read until when jobs are held: %w", err)
	}
	now := c.now()
	for i, j := range held {
		if at := time.UnixMilli(int64(scores[i].Val())).UTC(); at.After(now) {
			j.AvailableAt = at
		}
	}
	return nil
}

// statusOf translates the state of the hash.
var statusOf = map[string]Status{
	record.StatePending:   Pending,
	record.StateHeld:      Pending,
	record.StateScheduled: Pending,
	record.StateActive:    Running,
	record.StateRetry:     RetryPending,
	record.StateCompleted: Completed,
	record.StateFailed:    Failed,
	record.StateCancelled: Cancelled,
	record.StateExpired:   Expired,
	record.StatePaused:    Paused,
	record.StateWaiting:   Waiting,
}

// FromRecord makes a Job of the fields of its hash. It is for Tidegate's own
// packages; applications use Client.Get.
func FromRecord(fields map[string]string) (*Job, error) {
	msg, err := record.DecodeMessage([]byte(fields[record.FieldMsg]))
	if err != nil {
		return nil, err
	}
	j, err := fromMessage(msg)
	if err != nil {
		return nil, err
	}
	status, ok := statusOf[fields[record.FieldState]]
	if !ok {
		return nil, fmt.Errorf("job %s: state %q is not known to this version", j.ID, clip(fields[record.FieldState]))
	}
	j.Status = status
	j.apply(fields)
	if fields[record.FieldState] == record.StateHeld {
		j.because(record.ReasonOf(record.ReasonHeld, j.Destination+"/"+j.Key))
	}
	return j, nil
}

// FromMessage makes a Job of asynq's message and the changing fields that were
// read with it. It is for Tidegate's own packages.
func FromMessage(msg *record.Message, fields map[string]string) (*Job, error) {
	j, err := fromMessage(msg)
	if err != nil {
		return nil, err
	}
	j.Status = Running
	j.apply(fields)
	return j, nil
}

// storedPolicy is read without the checks of input: a later version may have
// written more than this one knows.
type storedPolicy RetryPolicy

func fromMessage(msg *record.Message) (*Job, error) {
	destination, priority, ok := record.ParseQueue(msg.Queue)
	if !ok {
		return nil, fmt.Errorf("job %s: queue %q is none of Tidegate's", clip(msg.ID), clip(msg.Queue))
	}
	h := msg.Headers
	j := &Job{
		ID: msg.ID, Destination: destination, Priority: Priority(priority), Key: h[record.HeaderKey],
		Payload: msg.Payload, Batch: h[record.HeaderBatch], Owner: h[record.HeaderOwner], After: []string{},
		Request: Request{Path: h[record.HeaderPath], Query: h[record.HeaderQuery]}, Trace: traceOf(h),
	}
	if len(j.Payload) == 0 {
		j.Payload = json.RawMessage("null")
	}
	if ms, err := strconv.ParseInt(h[record.HeaderCreated], 10, 64); err == nil {
		j.CreatedAt = time.UnixMilli(ms).UTC()
	}
	j.AvailableAt = j.CreatedAt
	var errs []error
	decode := func(name string, into any) {
		if v := h[name]; v != "" {
			if err := json.Unmarshal([]byte(v), into); err != nil {
				errs = append(errs, fmt.Errorf("job %s: header %s: %w", j.ID, name, err))
			}
		}
	}
	decode(record.HeaderHeaders, &j.Request.Headers)
	decode(record.HeaderMaxReschedules, &j.MaxReschedules)
	var policy *storedPolicy
	decode(record.HeaderRetry, &policy)
	j.Retry = (*RetryPolicy)(policy)
	decode(record.HeaderAfter, &j.After)
	return j, errors.Join(errs...)
}

// apply fills in what changes during the life of a job.
func (j *Job) apply(f map[string]string) {
	number := func(name string) int { n, _ := strconv.Atoi(f[name]); return n }
	instant := func(name string) *time.Time {
		ms, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil {
			return nil
		}
		t := time.UnixMilli(ms).UTC()
		return &t
	}
	j.Attempt = number(record.FieldAttempt)
	j.RescheduleCount = number(record.FieldReschedules)
	j.Crashes = number(record.FieldCrashes)
	j.LastError = f[record.FieldLastError]
	j.Worker = f[record.FieldBy]
	j.StartedAt = instant(record.FieldStartedAt)
	j.ExpiresAt = instant(record.FieldExpiresAt)
	if at := instant(record.FieldAvailableAt); at != nil {
		j.AvailableAt = *at
	}
	switch j.Status {
	case RetryPending:
		at := j.AvailableAt
		j.NextRetryAt = &at
		j.because(record.Reason(f[record.FieldReason]))
	case Pending, Waiting:
		j.because(record.Reason(f[record.FieldReason]))
	case Paused:
		j.Reason, j.ReasonCode = record.PausedBy(f[record.FieldMarkBy], f[record.FieldMarkReason]), record.ReasonPaused
	case Completed:
		j.CompletedAt = instant(record.FieldEndedAt)
	}
	if j.Status.Final() {
		j.EndedAt = instant(record.FieldEndedAt)
	}
	if j.Status == Expired {
		j.MarkedExpiredAt = j.EndedAt
	}
	if j.Status == Paused && f[record.FieldResume] == record.StateRetry {
		at := j.AvailableAt
		j.NextRetryAt = &at
	}
	if _, ok := f[record.FieldResponseStatus]; ok {
		j.Response = &Response{Status: number(record.FieldResponseStatus), Body: f[record.FieldResponseBody]}
	}
}

func (j *Job) because(r record.Reason) { j.Reason, j.ReasonCode = r.Text(), string(r) }
