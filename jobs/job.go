package jobs

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/tidegate/tidegate/internal/base/ratelimit"
)

// Status is the status of a job.
type Status string

// The statuses of a job. Completed, Failed, Cancelled and Expired are final.
const (
	// Waiting for its parents to complete, or for an earlier job of its key; see Order.
	Waiting Status = "waiting"
	// Pending: in the queue, or waiting for AvailableAt (scheduled, rescheduled, deferred or
	// held by a breaker).
	Pending Status = "pending"
	// Running: in flight at a worker, or accepted by its API, which reports the result; see Accepted.
	Running Status = "running"
	// RetryPending: failed, waiting for NextRetryAt.
	RetryPending Status = "retry_pending"
	// Paused by an operator, until resumed.
	Paused Status = "paused"
	// Completed: the destination accepted it.
	Completed Status = "completed"
	// Failed: not called again unless it is retried.
	Failed Status = "failed"
	// Cancelled by an operator, or because a parent did not complete.
	Cancelled Status = "cancelled"
	// Expired: its ExpiresAt passed before it was started.
	Expired Status = "expired"
)

// Statuses lists every status, in the order of a job's life.
var Statuses = []Status{Waiting, Pending, Running, RetryPending, Paused, Completed, Failed, Cancelled, Expired}

// Final reports whether s is final, unless the job is retried.
func (s Status) Final() bool {
	switch s {
	case Completed, Failed, Cancelled, Expired:
		return true
	}
	return false
}

// Priority orders the jobs of one destination among each other.
type Priority string

// The priorities. High is served first, but never alone: low is not starved.
const (
	PriorityHigh    Priority = "high"
	PriorityDefault Priority = "default"
	PriorityLow     Priority = "low"
)

// Job is a job as read from Redis. Its JSON form is the same for the CLI, the HTTP API and
// Go; times are RFC 3339 in UTC.
type Job struct {
	// ID is a UUIDv7 unless it was given at enqueue.
	ID          string   `json:"id"`
	Destination string   `json:"destination"`
	Key         string   `json:"key"`
	Status      Status   `json:"status"`
	Priority    Priority `json:"priority"`
	// Order is how it is called among the jobs of its key; "" for a job that leaves that to its destination.
	Order Ordering `json:"order,omitempty"`
	// Blocks is true for a failed job that keeps its place in the order of its key: the later jobs of the key wait
	// until it is retried or cancelled.
	Blocks bool `json:"blocks,omitempty"`
	// Replace is its replace-key, and Replaced the id of the job that it replaced; see [Replace]. Replaced is "" in lists.
	Replace  string `json:"replace,omitempty"`
	Replaced string `json:"replaced,omitempty"`
	// Edits counts how often a retry has changed the job; see [Set]. The Idempotency-Key of its calls ends in ":edit-" and this
	// number then, because the API must not take the call for a repeated one.
	Edits int `json:"edits,omitempty"`
	// Payload is sent as it was given, byte for byte, but for the outputs of parents: see Resolved.
	Payload json.RawMessage `json:"payload"`
	Request Request         `json:"request"`
	Batch   string          `json:"batch"`
	// Labels are free labels, by their keys; see [Label].
	Labels map[string]string `json:"labels,omitempty"`
	After  []string          `json:"after"`
	// OnSuccess and OnFailure are the URLs of signed callbacks when this job has completed, or has ended
	// otherwise. Their hosts are in CALLBACK_HOSTS.
	OnSuccess string `json:"on_success,omitempty"`
	OnFailure string `json:"on_failure,omitempty"`

	// Attempt counts the retries made; 0 means that none was needed yet.
	Attempt int `json:"attempt"`
	// Retry is nil for a job that is called once.
	Retry       *RetryPolicy `json:"retry"`
	NextRetryAt *time.Time   `json:"next_retry_at"`

	// RescheduleCount counts how often the job was rescheduled, which is not a failure.
	RescheduleCount int `json:"reschedule_count"`
	// MaxReschedules is nil for a job without a limit.
	MaxReschedules *int `json:"max_reschedules"`
	// Cost is what a call takes of each window of the destination's declared limits. A handler
	// may set it to what the call has really cost, whatever its outcome: that corrects what was
	// taken, and is not stored with the job.
	Cost int `json:"cost"`
	// Costs is what a call takes of named limits, by their units, such as tokens. A handler may set
	// them as Cost.
	Costs map[string]int `json:"costs,omitempty"`
	// AvailableAt is the earliest instant at which it may be started.
	AvailableAt time.Time `json:"available_at"`

	CreatedAt time.Time  `json:"created_at"`
	StartedAt *time.Time `json:"started_at"`
	// CallSecs is how long the last call took that has ended, in seconds; nil before one has.
	CallSecs  *float64   `json:"call_secs"`
	ExpiresAt *time.Time `json:"expires_at"`
	// MarkedExpiredAt is when the job became expired.
	MarkedExpiredAt *time.Time `json:"expired_at"`
	CompletedAt     *time.Time `json:"completed_at"`
	EndedAt         *time.Time `json:"ended_at"`

	// Response is the destination's latest answer, nil before that.
	Response *Response `json:"response"`
	// Output is what a completed job passes on to its children, nil for nothing: JSON of at
	// most MaxOutputBytes. A handler may set it; it is stored if the job completes. If it is not
	// valid or too long, the job completes without it, because the call has been made, and
	// LastError says so. It is nil in lists.
	Output json.RawMessage `json:"output"`
	// Progress is how far the API has come with a job that it has accepted, as it has reported last: JSON of at most
	// MaxProgressBytes; nil without a report. It is nil in lists.
	Progress json.RawMessage `json:"progress,omitempty"`
	// Parents are the outputs of completed parents by their ids; see ParentOutput. It is not
	// printed, and nil in lists.
	Parents map[string]Parent `json:"-"`
	// Budget is the remaining budget that the API reported with the answer. A handler may set
	// it; the worker reports it to the breaker. It is not stored with the job: it is nil in
	// every job that is looked up.
	Budget    *Budget `json:"-"`
	LastError string  `json:"last_error"`
	// Reason is the text of why a worker deferred the job, of the operator that paused it
	// and the operator's reason, or of the answer rule that completed or failed it.
	Reason string `json:"reason"`
	// ReasonCode is the same for programs: a code and its data, such as "breaker_open
	// deviantart/alice", "rate_limited deviantart", "publisher", "retry 1 3 timeout"; more
	// codes may come.
	ReasonCode string `json:"-"`
	// Worker runs the job, or ran it last: host:pid.
	Worker string `json:"worker"`
	// Crashes counts the workers that died while they ran the job.
	Crashes int `json:"crashes"`
	// Duplicate is true in the answer to an enqueue with an id that existed.
	Duplicate bool `json:"duplicate"`
	// Owner is the owner of a given id; see [Spec]. It is not printed.
	Owner string `json:"-"`
	// Gateway is true if the gateway of the HTTP API made the job, KeepResponse if its Response is kept as
	// it came. They are not printed.
	Gateway      bool `json:"-"`
	KeepResponse bool `json:"-"`
	// Trace is the trace context that the job was enqueued with, in the form of its
	// propagation format, such as traceparent; nil without one. See WithTrace.
	Trace map[string]string `json:"-"`
}

// Clone copies a job with everything that it points to.
func (j *Job) Clone() *Job {
	c := *j
	c.Payload = bytes.Clone(j.Payload)
	c.Request.Headers, c.Trace = maps.Clone(j.Request.Headers), maps.Clone(j.Trace)
	c.After, c.Costs, c.Labels = slices.Clone(j.After), maps.Clone(j.Costs), maps.Clone(j.Labels)
	c.Output, c.Progress, c.Parents = bytes.Clone(j.Output), bytes.Clone(j.Progress), maps.Clone(j.Parents)
	for id, p := range c.Parents {
		p.Output = bytes.Clone(p.Output)
		c.Parents[id] = p
	}
	c.MaxReschedules, c.CallSecs = copied(j.MaxReschedules), copied(j.CallSecs)
	if c.Retry = copied(j.Retry); c.Retry != nil {
		c.Retry.RetryOn = slices.Clone(j.Retry.RetryOn)
	}
	c.Response, c.Budget = copied(j.Response), copied(j.Budget)
	for _, t := range []**time.Time{&c.NextRetryAt, &c.StartedAt, &c.ExpiresAt, &c.MarkedExpiredAt, &c.CompletedAt, &c.EndedAt} {
		*t = copied(*t)
	}
	return &c
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Request is the part of an HTTP request that a job may set.
type Request struct {
	// Method of the call, in upper case. Default: the destination's.
	Method string `json:"method,omitempty"`
	// Path is appended to the destination's URL and stays below it; it starts with a slash.
	Path string `json:"path,omitempty"`
	// Query is appended to the destination's query, without a question mark. A job fails if
	// it has a parameter that the destination sets, in any spelling.
	Query string `json:"query,omitempty"`
	// Headers are sent with the call. Some names are refused: Authorization, Cookie, Host,
	// Idempotency-Key, headers of the connection, headers that servers trust about the
	// caller, the address or the method (Forwarded, X-Forwarded-…, X-Client-IP, X-Remote-User,
	// CF-…, X-HTTP-Method-Override), and names with an underscore. A job fails if it has a header
	// that the destination sets.
	Headers map[string]string `json:"headers,omitempty"`
	// Encoding makes the body of the payload. Default EncodingJSON.
	Encoding Encoding `json:"encoding,omitempty"`
	// TimeoutSecs bounds the call, in seconds, where the destination's timeout is longer. 0: the destination's
	// timeout.
	TimeoutSecs int `json:"timeout_secs,omitempty"`
}

// Response is the destination's answer to the latest call. Its Body has no control
// characters.
type Response = ratelimit.Response

// ExpiredAt reports whether the job must not be started at t or later, because
// its ExpiresAt has come. A job without ExpiresAt never expires.
func (j *Job) ExpiredAt(t time.Time) bool { return j.ExpiresAt != nil && !t.Before(*j.ExpiresAt) }
