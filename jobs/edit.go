package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Bounds of the changes of one retry.
const (
	mostEdits   = 20
	longestPath = 200
	// editedAtOnce is how many records are read at once, which may have payloads of MaxPayloadBytes each.
	editedAtOnce = 20
)

// edit is a change of a job that is retried.
type edit struct {
	path  string
	value json.RawMessage
	err   error
}

// Set changes a part of the job before it is retried: a retry that is refused changes nothing. The path is "payload", or
// begins with "payload.", then names of fields and indexes of lists: "payload.items.0.title". The last field may be new. What is
// not named stays as it is, byte for byte. Of the request, "request.path", ".query", ".method", ".encoding", ".timeout_secs"
// and ".headers.NAME" can be set. The value is encoded as the payload of [New] is.
//
// The job is validated as at an enqueue, its history names the paths, and its Idempotency-Key is a new one; see [Job].Edits.
// Only [Client.Retry] and [ActionRetry] take it; up to 20 of them.
func Set(path string, value any) ActOption {
	e := edit{path: path}
	switch v := value.(type) {
	case json.RawMessage:
		e.value = v
	default:
		e.value, e.err = json.Marshal(value)
	}
	if e.err == nil && !json.Valid(e.value) {
		e.err = errors.New("the value is not valid JSON")
	}
	return func(a *actor) { a.edits = append(a.edits, e) }
}

// actOrder is an action to execute, with the changes of a retry.
type actOrder struct {
	store.Order

	edits []edit
}

const settable = "there are payload, and in the request request.path, .query, .method, .encoding, .timeout_secs and .headers.NAME"

// checkEdits checks what does not depend on the job.
func checkEdits(a Action, edits []edit) error {
	var errs fieldErrors
	bad := errs.add
	if len(edits) > 0 && a != ActionRetry {
		bad("set", "changes jobs that are retried; it cannot be given to %s", a)
	}
	if len(edits) > mostEdits {
		bad("set", "has %d paths, at most %d are accepted", len(edits), mostEdits)
	}
	for _, e := range edits[:min(len(edits), mostEdits)] {
		first, _, _ := strings.Cut(e.path, ".")
		switch {
		case len(e.path) > longestPath:
			bad("set", "%q has more than %d bytes; set the object around it", clip(e.path), longestPath)
		case first != "payload" && first != "request" || e.path == "request":
			bad("set", "%q cannot be changed; %s", clip(e.path), settable)
		case slices.Contains(strings.Split(e.path, "."), ""):
			bad("set", "%q has an empty part; write names with one dot between them, such as payload.title", clip(e.path))
		case e.err != nil:
			bad("set", "%s: %v", clip(e.path), e.err)
		}
	}
	return errs.err()
}

// retryEdited retries jobs of one queue with changes. A job that cannot be changed is Refused, with the error.
func (c *Client) retryEdited(ctx context.Context, o actOrder, queue string, ids []string) ([]store.ActResult, error) {
	out := make([]store.ActResult, 0, len(ids))
	for some := range slices.Chunk(ids, editedAtOnce) {
		cmds, err := redispipe.Each(ctx, c.rdb, some, func(pipe redis.Pipeliner, id string) *redis.MapStringStringCmd {
			return pipe.HGetAll(ctx, store.TaskKey(queue, id))
		})
		edits, wrong := make([]store.Edit, len(some)), make([]error, len(some))
		for i, cmd := range cmds {
			if s := cmd.Val()[store.FieldState]; s == store.StateFailed || s == store.StateCancelled { // others are refused
				edits[i], wrong[i] = c.edited(cmd.Val(), o.edits)
			}
		}
		var results []store.ActResult
		if err == nil {
			results, err = store.RetryEdited(ctx, c.rdb, queue, o.Order, some, edits)
		}
		for i, r := range results {
			if r.Effect == store.Changed {
				r.Effect, r.Err = store.Refused, cmp.Or(wrong[i], error(&StatusError{ID: some[i], Action: ActionRetry, Status: statusOf[cmds[i].Val()[store.FieldState]], Detail: "and has just been changed by somebody else; try again"}))
			}
			out = append(out, r)
		}
		if err != nil {
			for len(out) < len(ids) {
				out = append(out, store.ActResult{Effect: store.Unreached})
			}
			return out, fmt.Errorf("change jobs of %s: %w", queue, err)
		}
	}
	return out, nil
}

// request is a Request with all of its fields, so that each can be set.
type request struct {
	Method      string            `json:"method"`
	Path        string            `json:"path"`
	Query       string            `json:"query"`
	Headers     map[string]string `json:"headers"`
	Encoding    Encoding          `json:"encoding"`
	TimeoutSecs int               `json:"timeout_secs"`
}

// edited applies changes to a job, and validates it as at an enqueue. The error is a *ValidationError, or says that the
// record cannot be read.
func (c *Client) edited(record map[string]string, edits []edit) (store.Edit, error) {
	j, err := fromRecord(record)
	if err != nil {
		return store.Edit{}, err
	}
	if store.System(j.Destination) {
		return store.Edit{}, &ValidationError{Fields: []FieldError{{"set", "Tidegate made this job itself; it can be retried, and not changed"}}}
	}
	parts := map[string]json.RawMessage{"payload": j.Payload}
	r := request(j.Request)
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	if parts["request"], err = json.Marshal(r); err != nil {
		return store.Edit{}, fmt.Errorf("encode the request: %w", err)
	}
	var errs fieldErrors
	var paths []string
	for _, e := range edits {
		names := strings.Split(e.path, ".")
		if names[0] == "request" && string(e.value) == "null" {
			errs.add("set", "%s cannot be null; to take a header out, set request.headers to the others", clip(e.path))
			continue
		}
		value, err := setIn(parts[names[0]], names[1:], e.value)
		if err != nil {
			errs.add("set", "%s: %v", clip(e.path), err)
			continue
		}
		parts[names[0]] = value
		paths = append(paths, e.path)
	}
	var changedRequest request // a fresh one: what is left out of headers goes
	dec := json.NewDecoder(bytes.NewReader(parts["request"]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&changedRequest); err != nil {
		errs.add("set", "the request cannot be changed like this (%v); %s", err, settable)
	}
	if err := errs.err(); err != nil {
		return store.Edit{}, err
	}
	j.Payload, j.Request = parts["payload"], Request(changedRequest)
	s := Spec{
		ID: j.ID, Destination: j.Destination, Key: j.Key, Payload: j.Payload, Request: j.Request, Priority: j.Priority, Order: j.Order,
		Retry: j.Retry, MaxReschedules: j.MaxReschedules, Cost: &j.Cost, Costs: j.Costs, Batch: j.Batch, After: j.After,
		OnSuccess: j.OnSuccess, OnFailure: j.OnFailure, Gateway: j.Gateway, KeepResponse: j.KeepResponse,
	}
	if invalid, ok := errors.AsType[*ValidationError](s.Validate(c.limits, c.check)); ok {
		for _, f := range invalid.Fields {
			errs.add("set", "the changed job is not valid: %s: %s", f.Field, f.Message)
		}
		return store.Edit{}, errs.err()
	}
	j.Edits++
	headers, err := headersOf(j)
	if err != nil {
		return store.Edit{}, err
	}
	changed := map[string]string{}
	for _, name := range []string{store.HeaderMethod, store.HeaderPath, store.HeaderQuery, store.HeaderHeaders, store.HeaderEncoding, store.HeaderTimeout, store.HeaderEdits} {
		changed[name] = headers[name]
	}
	return store.EditMessage(record[store.FieldMsg], j.Payload, changed, strings.Join(paths, ", ")) //nolint:wrapcheck // it names the message
}

// setIn returns JSON with the value at a path, and the rest byte for byte as it was.
func setIn(raw json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	if len(path) == 0 {
		return value, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, _ := dec.Token()
	from, to, n := -1, -1, 0
	for ; open == json.Delim('{') && dec.More(); n++ {
		name, _ := dec.Token()
		if size := skip(dec); name == path[0] {
			to = int(dec.InputOffset())
			from = to - size
		}
	}
	for ; open == json.Delim('[') && dec.More(); n++ {
		if size := skip(dec); strconv.Itoa(n) == path[0] {
			to = int(dec.InputOffset())
			from = to - size
		}
	}
	switch {
	case from >= 0:
		inner, err := setIn(raw[from:to], path[1:], value)
		return slices.Concat(raw[:from], inner, raw[to:]), err
	case open == json.Delim('['):
		return nil, fmt.Errorf("%q is not an index of the list, which has %d elements", clip(path[0]), n)
	case open != json.Delim('{'):
		return nil, fmt.Errorf("%q is looked for in a value that is no object and no list", clip(path[0]))
	case len(path) > 1:
		return nil, fmt.Errorf("there is no field %q; set the object around it", clip(path[0]))
	}
	_, _ = dec.Token()
	end := int(dec.InputOffset()) - 1
	name, err := json.Marshal(path[0])
	comma := ""
	if n > 0 {
		comma = ","
	}
	return slices.Concat(raw[:end], []byte(comma), name, []byte(":"), value, raw[end:]), err
}

// skip reads a value, and returns its length.
func skip(dec *json.Decoder) int {
	var v json.RawMessage
	_ = dec.Decode(&v)
	return len(v)
}
