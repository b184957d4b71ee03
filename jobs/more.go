package jobs

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
)

// more is the argument of enqueue.lua for a job with options. Instants and durations are in
// milliseconds.
type more struct {
	At        *int64   `json:"at,omitempty"`
	Delay     *int64   `json:"delay,omitempty"`
	ExpiresAt *int64   `json:"expires_at,omitempty"`
	TTL       *int64   `json:"ttl,omitempty"`
	Batch     string   `json:"batch,omitempty"`
	Created   int64    `json:"created,omitempty"`
	After     []string `json:"after,omitempty"`
	Key       string   `json:"key,omitempty"`
	Order     Ordering `json:"order,omitempty"`
	Payload   *[2]int  `json:"payload,omitempty"` // the range of a long one in the message

	Replace    string `json:"replace,omitempty"`
	ReplaceMax int64  `json:"replace_max,omitempty"`
}

// moreOf encodes it, "" for a job without options, and sets the fields of the job that do not
// depend on Redis's reply.
func moreOf(j *Job, s *Spec, now time.Time) (string, error) {
	m := more{Batch: s.Batch, After: j.After, Key: s.Key, Order: s.Order, Replace: s.replaceName(), ReplaceMax: store.Millis(s.ReplaceMax)}
	if s.Batch != "" {
		m.Created = j.CreatedAt.UnixMilli()
	}
	switch {
	case s.Delay > 0:
		ms := store.Millis(s.Delay)
		m.Delay = &ms
		j.AvailableAt = j.CreatedAt.Add(store.Duration(ms))
	case s.At.After(now):
		ms := s.At.Add(time.Millisecond - 1).UnixMilli()
		m.At = &ms
		j.AvailableAt = time.UnixMilli(ms).UTC()
	}
	switch {
	case s.TTL != nil:
		ms := store.Millis(*s.TTL)
		m.TTL = &ms
		at := j.CreatedAt.Add(store.Duration(ms))
		j.ExpiresAt = &at
	case !s.ExpiresAt.IsZero():
		ms := s.ExpiresAt.UnixMilli()
		m.ExpiresAt = &ms
		at := time.UnixMilli(ms).UTC()
		j.ExpiresAt = &at
	}
	if len(m.After) > 0 {
		j.Status = Waiting
	}
	if len(j.Payload) > store.OutlineAbove {
		from, to := store.PayloadSpan(j.Payload)
		m.Payload = &[2]int{from, to}
	}
	if m.At == nil && m.Delay == nil && m.ExpiresAt == nil && m.TTL == nil && m.Batch == "" && m.Key == "" && m.Order == "" && m.Replace == "" && len(m.After) == 0 && m.Payload == nil {
		return "", nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode the options: %w", err)
	}
	return string(b), nil
}

// unique returns ids without repetitions, never nil.
func unique(ids []string) []string {
	out := make([]string, 0, len(ids))
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, ok := seen[id]; !ok {
			seen[id] = struct{}{}
			out = append(out, id)
		}
	}
	return out
}
