package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"

	"github.com/redis/go-redis/v9"
)

// Get returns the job with the id, from any destination. It costs one round trip (a second
// one if the cached list of queues is older than 5 s). Errors: ErrNotFound, or Redis's.
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

// readAll looks up every id in every queue, in one pipeline. Ids without a job are left out; the jobs are in the
// order of the ids.
func (c *Client) readAll(ctx context.Context, queues, ids []string) ([]*Job, error) {
	if len(queues) == 0 || len(ids) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.MapStringStringCmd, 0, len(queues)*len(ids))
	_, err := redispipe.Run(ctx, c.rdb, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			for _, q := range queues {
				cmds = append(cmds, pipe.HGetAll(ctx, store.TaskKey(q, id)))
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
		if fields[store.FieldMsg] == "" {
			continue
		}
		j, err := fromRecord(fields)
		if err != nil {
			return nil, err
		}
		out = append(out, j)
		if fields[store.FieldState] == store.StateHeld {
			held = append(held, j)
		}
	}
	if err := c.heldUntil(ctx, held); err != nil {
		return nil, err
	}
	return out, nil
}

// heldUntil reads until when held jobs wait.
func (c *Client) heldUntil(ctx context.Context, held []*Job) error {
	if len(held) == 0 {
		return nil
	}
	scores, err := redispipe.Each(ctx, c.rdb, held, func(pipe redis.Pipeliner, j *Job) *redis.FloatCmd {
		key := strings.TrimPrefix(store.Reason(j.ReasonCode).About(), j.Destination+"/")
		return pipe.ZScore(ctx, store.HeldIndexKey(c.ns.Queue(j.Destination, store.Priority(j.Priority))), key)
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("read until when jobs are held: %w", err)
	}
	now := c.now()
	for i, j := range held {
		if scores[i].Val() == store.InTurns {
			j.because(store.ReasonOf(store.ReasonTurn, store.Reason(j.ReasonCode).About()))
			continue
		}
		if at := time.UnixMilli(int64(scores[i].Val())).UTC(); at.After(now) {
			j.AvailableAt = at
		}
	}
	return nil
}

// statusOf maps the state of a record to the status.
var statusOf = map[string]Status{
	store.StatePending:   Pending,
	store.StateHeld:      Pending,
	store.StateScheduled: Pending,
	store.StateActive:    Running,
	store.StateAccepted:  Running,
	store.StateRetry:     RetryPending,
	store.StateCompleted: Completed,
	store.StateFailed:    Failed,
	store.StateCancelled: Cancelled,
	store.StateExpired:   Expired,
	store.StatePaused:    Paused,
	store.StateWaiting:   Waiting,
}

func init() {
	store.SetDecoder(func(job *Job, msg *store.Message, fields map[string]string) error {
		decode := fromTask
		if msg == nil {
			decode = func(_ *store.Message, fields map[string]string) (*Job, error) { return fromRecord(fields) }
		}
		j, err := decode(msg, fields)
		if err == nil {
			*job = *j
		}
		return err
	})
}

// stateArchived is a state of asynq's that no job of ours has by itself.
const stateArchived = "archived"

// fromRecord makes a Job of the fields of its record.
func fromRecord(fields map[string]string) (*Job, error) {
	msg, err := store.DecodeMessage([]byte(fields[store.FieldMsg]))
	if err != nil {
		return nil, err
	}
	j, err := fromMessage(msg)
	if err != nil {
		return nil, err
	}
	status, ok := statusOf[fields[store.FieldState]]
	if !ok {
		if fields[store.FieldState] == stateArchived {
			return nil, fmt.Errorf("job %s: a tool of asynq has archived it: run tidegate doctor, which makes it a failed job that can be retried", j.ID)
		}
		return nil, fmt.Errorf("job %s: state %q is not known to this version", j.ID, clip(fields[store.FieldState]))
	}
	j.Status = status
	j.apply(fields)
	if fields[store.FieldState] == store.StateHeld {
		code, key := store.ReasonHeld, fields[store.FieldKey]
		if key == "" { // no breaker holds it
			code = store.ReasonTurn
		}
		j.because(store.ReasonOf(code, j.Destination+"/"+key))
	}
	if fields[store.FieldState] == store.StateAccepted {
		j.because(store.Reason(cmp.Or(fields[store.FieldReason], store.ReasonAccepted)))
	}
	return j, nil
}

// fromTask makes a running Job of asynq's message and the changing fields that were read
// with it.
func fromTask(msg *store.Message, fields map[string]string) (*Job, error) {
	j, err := fromMessage(msg)
	if err != nil {
		return nil, err
	}
	j.Status = Running
	j.apply(fields)
	return j, nil
}

func fromMessage(msg *store.Message) (*Job, error) {
	destination, priority, ok := store.ParseQueue(msg.Queue)
	if !ok {
		return nil, fmt.Errorf("job %s: queue %q is not one of Tidegate's", clip(msg.ID), clip(msg.Queue))
	}
	h := msg.Headers
	j := &Job{
		ID: msg.ID, Destination: destination, Priority: Priority(priority), Key: h[store.HeaderKey],
		Payload: msg.Payload, Batch: h[store.HeaderBatch], Order: Ordering(h[store.HeaderOrder]), Replace: h[store.HeaderReplace], Owner: h[store.HeaderOwner], After: []string{}, Gateway: h[store.HeaderGateway] != "", KeepResponse: h[store.HeaderGateway] == "1",
		OnSuccess: h[store.HeaderOnSuccess], OnFailure: h[store.HeaderOnFailure],
		Request: Request{
			Method: h[store.HeaderMethod], Path: h[store.HeaderPath], Query: h[store.HeaderQuery], Encoding: Encoding(h[store.HeaderEncoding]),
		},
		Cost: 1, Trace: traceOf(h),
	}
	if len(j.Payload) == 0 {
		j.Payload = json.RawMessage("null")
	}
	if ms, err := strconv.ParseInt(h[store.HeaderCreated], 10, 64); err == nil {
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
	decode(store.HeaderHeaders, &j.Request.Headers)
	decode(store.HeaderTimeout, &j.Request.TimeoutSecs)
	decode(store.HeaderMaxReschedules, &j.MaxReschedules)
	decode(store.HeaderCost, &j.Cost)
	decode(store.HeaderCosts, &j.Costs)
	decode(store.HeaderLabels, &j.Labels)
	decode(store.HeaderEdits, &j.Edits)
	// Unlike input it may have fields that this version does not know.
	var policy *policyJSON
	if decode(store.HeaderRetry, &policy); policy != nil {
		p := policy.policy()
		j.Retry = &p
	}
	decode(store.HeaderAfter, &j.After)
	return j, errors.Join(errs...)
}

// apply sets the fields that change during the life of a job.
func (j *Job) apply(f map[string]string) {
	// A fetched job has few of them: do not make an error for each of the others.
	number := func(name string) int {
		if f[name] == "" {
			return 0
		}
		n, _ := strconv.Atoi(f[name])
		return n
	}
	instant := func(name string) *time.Time {
		if f[name] == "" {
			return nil
		}
		ms, err := strconv.ParseInt(f[name], 10, 64)
		if err != nil {
			return nil
		}
		t := time.UnixMilli(ms).UTC()
		return &t
	}
	j.Attempt = number(store.FieldAttempt)
	j.RescheduleCount = number(store.FieldReschedules)
	j.Crashes = number(store.FieldCrashes)
	j.LastError, j.Replaced = f[store.FieldLastError], f[store.FieldReplaced]
	j.Worker = f[store.FieldBy]
	j.StartedAt = instant(store.FieldStartedAt)
	j.ExpiresAt = instant(store.FieldExpiresAt)
	if at := instant(store.FieldAvailableAt); at != nil {
		j.AvailableAt = *at
	}
	switch j.Status {
	case RetryPending:
		at := j.AvailableAt
		j.NextRetryAt = &at
		j.because(store.Reason(f[store.FieldReason]))
	case Pending:
		j.because(store.Reason(f[store.FieldReason]))
	case Waiting:
		j.because(store.Reason(f[store.FieldReason]))
		if key, _ := store.ParseLine(f[store.FieldLine]); key != "" && number(store.FieldWaits) <= 0 {
			j.because(store.ReasonOf(store.ReasonOrder, key))
		}
	case Failed:
		_, j.Blocks = store.ParseLine(f[store.FieldLine])
	case Paused:
		j.Reason, j.ReasonCode = words.PausedBy(f[store.FieldActionBy], f[store.FieldActionReason]), store.ReasonPaused
	case Completed:
		j.CompletedAt = instant(store.FieldEndedAt)
	}
	if j.Status.Final() {
		j.EndedAt = instant(store.FieldEndedAt)
		if r := store.Reason(f[store.FieldReason]); r.Code() == store.ReasonDecided { // others are of an earlier wait
			j.because(r)
		}
	}
	if f[store.FieldTook] != "" {
		j.CallSecs = new(float64(number(store.FieldTook)) / 1000)
	} else if j.Status == Completed && j.StartedAt != nil && j.EndedAt != nil {
		j.CallSecs = new(max(time.Millisecond, j.EndedAt.Sub(*j.StartedAt)).Seconds())
	}
	if j.Status == Expired {
		j.MarkedExpiredAt = j.EndedAt
	}
	if j.Status == Paused && f[store.FieldResume] == store.StateRetry {
		at := j.AvailableAt
		j.NextRetryAt = &at
	}
	if progress := f[store.FieldProgress]; progress != "" {
		j.Progress = json.RawMessage(progress)
	}
	if output := f[store.FieldOutput]; output != "" {
		j.setOutput(output)
	}
	if len(j.After) > 0 {
		j.setParents(f)
	}
	if _, ok := f[store.FieldResponseStatus]; ok {
		j.Response = &Response{Status: number(store.FieldResponseStatus), Body: f[store.FieldResponseBody]}
		if kind, headers, body, cut, ok := store.ParseGatewayBody(j.Response.Body); ok {
			j.Response.ContentType, j.Response.Headers, j.Response.Raw, j.Response.Cut = kind, headers, body, cut
			j.Response.Body = text.Printable(body)
		}
	}
}

func (j *Job) because(r store.Reason) { j.Reason, j.ReasonCode = words.Reason(r), string(r) }
