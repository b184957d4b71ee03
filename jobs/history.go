package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/queue/words"
)

// HistoryEntry is one version of a job.
type HistoryEntry struct {
	Version int       `json:"version" doc:"Counts from 1. The first and the last 99 are kept." example:"3"`
	At      time.Time `json:"at" doc:"When." example:"2030-01-31T14:35:00Z"`
	Status  Status    `json:"status" doc:"The status from then on." example:"pending"`
	Event   string    `json:"event" doc:"What happened: created, started, accepted, rescheduled, retry_scheduled, completed, failed, cancelled, expired, paused, resumed, retried, released, worker_lost, recovered, repaired." example:"rescheduled"`
	Detail  string    `json:"detail" doc:"More, for people." example:"available_at +60s, count 1, breaker deviantart open"`
	Took    float64   `json:"call_secs,omitempty" doc:"How many seconds the call took that ended with this; left out without one." example:"0.21"`
	By      string    `json:"by,omitempty" doc:"The actor: a worker, or the name of a person's token; left out if it happened by itself." example:"token:shop"`
}

// mostVersions bounds the versions kept of a job.
const mostVersions = 100

// History returns the versions of a job, the oldest first: its creation and at most 99 later
// ones. A job that is published at its first call costs no write for it: its start and its
// end are read from the record. Errors: ErrNotFound, or Redis's.
func (c *Client) History(ctx context.Context, id string) ([]HistoryEntry, error) {
	if !ValidName(id) {
		return nil, fmt.Errorf("jobs: history of %q: %w", clip(id), ErrNotFound)
	}
	queue, err := c.findQueue(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("jobs: history of %s: %w", id, err)
	}
	j, fields, err := c.readFields(ctx, queue, id)
	if err == nil && c.expireSeen(ctx, []*Job{j})[0] != j {
		j, fields, err = c.readFields(ctx, queue, id)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: history of %s: %w", id, err)
	}
	return historyOf(j, fields), nil
}

// readFields reads a job with its record.
func (c *Client) readFields(ctx context.Context, queue, id string) (*Job, map[string]string, error) {
	fields, err := c.rdb.HGetAll(ctx, store.TaskKey(queue, id)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("read record: %w", err)
	}
	if fields[store.FieldMsg] == "" {
		return nil, nil, ErrNotFound
	}
	j, err := fromRecord(fields)
	return j, fields, err
}

// historyOf assembles the history: versions that are not stored follow from the record.
func historyOf(j *Job, fields map[string]string) []HistoryEntry {
	created := HistoryEntry{Version: 1, At: j.CreatedAt, Status: Pending, Event: "created"}
	if len(j.After) > 0 {
		created.Status = Waiting
		created.Detail = "after " + joinSome(j.After)
	}
	if j.Replaced != "" {
		created.Detail = "replaces " + j.Replaced
	}
	out := []HistoryEntry{created}
	version := 1
	for _, v := range store.Versions(fields[store.FieldHistory]) {
		out = append(out, HistoryEntry{
			Version: v.Version, At: time.UnixMilli(v.At).UTC(), Status: Status(v.Status), Event: v.Event, Detail: words.Detail(v), By: v.By, Took: v.Took / 1000,
		})
		version = v.Version
	}
	add := func(at *time.Time, s Status, event, detail string) {
		version++
		e := HistoryEntry{Version: version, Status: s, Event: event, Detail: detail, By: j.Worker}
		if at != nil {
			e.At = *at
		}
		out = append(out, e)
	}
	// The history already has the start of a run whose worker was taken for dead.
	started := j.StartedAt != nil && !j.StartedAt.Before(out[len(out)-1].At)
	switch j.Status {
	case Running:
		if out[len(out)-1].Event == "accepted" {
			break
		}
		add(j.StartedAt, Running, "started", "")
	case Completed:
		if out[len(out)-1].Event == "completed" { // from outside
			break
		}
		if started {
			add(j.StartedAt, Running, "started", "")
		}
		detail := ""
		if r := j.Response; r != nil && r.Status != 0 {
			detail = fmt.Sprintf("answered %d", r.Status)
		}
		add(j.CompletedAt, Completed, "completed", detail)
		if j.CallSecs != nil {
			out[len(out)-1].Took = *j.CallSecs
		}
	case Waiting, Pending, RetryPending, Paused, Failed, Cancelled, Expired:
	}
	if over := len(out) - mostVersions; over > 0 {
		out = append(out[:1], out[1+over:]...)
	}
	return out
}
