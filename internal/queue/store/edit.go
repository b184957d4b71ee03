package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // of a message that Redis compares, no secret
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/redis/go-redis/v9"
)

var editScript = script("actions", "edit", "retry")

// Edit is a change of a job, made in the step that retries it.
type Edit struct {
	read    string // SHA-1 of the message that was changed
	message []byte
	outline []byte
	parts   string
}

// EditMessage returns the change of an encoded message: a new payload, and headers; "" removes one. parts names what was
// changed, for the history.
func EditMessage(encoded string, payload []byte, headers map[string]string, parts string) (Edit, error) {
	m, err := DecodeMessage([]byte(encoded))
	if err != nil {
		return Edit{}, err
	}
	m.Payload = payload
	if m.Headers == nil {
		m.Headers = map[string]string{}
	}
	maps.Copy(m.Headers, headers)
	maps.DeleteFunc(m.Headers, func(_, value string) bool { return value == "" })
	sum := sha1.Sum([]byte(encoded)) //nolint:gosec // as above
	e := Edit{read: hex.EncodeToString(sum[:]), message: m.AppendTo(nil), parts: parts}
	if len(payload) > OutlineAbove {
		m.Payload = nil
		e.outline = m.AppendTo(nil)
	}
	return e, nil
}

// RetryEdited retries jobs of one queue as [Act] does, and changes each in the same step: the job is retried as changed, or
// not at all. The effect is Changed if the job's message is not the one that was read, as for the zero Edit.
func RetryEdited(ctx context.Context, rdb redis.UniversalClient, queue string, o Order, ids []string, edits []Edit) ([]ActResult, error) {
	out := make([]ActResult, len(ids))
	for i := range out {
		out[i].Effect = Unreached
	}
	for from := 0; from < len(ids); {
		to, bytes := from, 0
		args := []any{queue, o.By, o.Reason, statesArg(o.States), 0}
		for ; to < len(ids) && to-from < idsPerScript && (to == from || bytes+len(edits[to].message) <= enqueueBytes); to++ {
			bytes += len(edits[to].message)
			args = append(args, ids[to])
		}
		args[4] = to - from
		for _, e := range edits[from:to] {
			args = append(args, e.read, e.message, e.outline, e.parts)
		}
		if err := actWith(ctx, rdb, editScript, queue, args, out[from:to]); err != nil {
			return out, fmt.Errorf("%s jobs of %s: %w", o.Action, queue, err)
		}
		from = to
	}
	return out, nil
}
