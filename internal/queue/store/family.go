package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	registerScript         = script("register")
	outboxScript           = script("outbox")
	parentEndedScript      = script("parent_ended")
	childrenReleasedScript = script("children_released")
)

// Ref names a job: its id and its queue.
type Ref struct{ Queue, ID string }

func (r Ref) String() string { return r.Queue + " " + r.ID }

func parseRef(s string) (Ref, bool) {
	queue, id, ok := strings.Cut(s, " ")
	return Ref{queue, id}, ok
}

// Register makes jobs the children of a parent. If the parent has ended, Register releases or
// cancels them at once, and parentEnded is true. It is idempotent.
//
// The children must be in Redis already: a parent that ends meanwhile finds them.
func Register(ctx context.Context, rdb redis.UniversalClient, parent Ref, children []Ref) (parentEnded bool, err error) {
	if len(children) > registeredAtOnce {
		for part := range slices.Chunk(children, registeredAtOnce) {
			ended, err := Register(ctx, rdb, parent, part)
			if err != nil {
				return false, err
			}
			parentEnded = parentEnded || ended
		}
		return parentEnded, nil
	}
	args := make([]any, 0, 2+len(children))
	args = append(args, parent.Queue, parent.ID)
	for _, c := range children {
		args = append(args, c.String())
	}
	reply, err := registerScript.Run(ctx, rdb, []string{PendingKey(parent.Queue)}, args...).StringSlice()
	if err != nil || len(reply) != 3 {
		return false, fmt.Errorf("register children of %s: %w", parent.ID, err)
	}
	state := reply[0]
	if state == "-" || Final(state) {
		return true, settleChildren(ctx, rdb, endedParent{parent.ID, state, reply[1], reply[2]}, children)
	}
	return false, nil
}

// AskParents returns a function that calls Readopt for a job of any queue.
func AskParents(rdb redis.UniversalClient) func(ctx context.Context, queue, id string) error {
	return func(ctx context.Context, queue, id string) error {
		return Readopt(ctx, rdb, Ref{queue, id}, func(ctx context.Context, ids []string) (map[string]string, error) {
			return namespaceOf(queue).locateAnywhere(ctx, rdb, ids)
		})
	}
}

// Readopt registers a waiting job with its parents that have not completed, after a retry
// or an interrupted enqueue. locate returns the queues of ids; an unknown parent cancels
// the job.
func Readopt(ctx context.Context, rdb redis.UniversalClient, child Ref, locate func(context.Context, []string) (map[string]string, error)) error {
	fields, err := rdb.HGetAll(ctx, TaskKey(child.Queue, child.ID)).Result()
	if err != nil {
		return fmt.Errorf("read parents of %s: %w", child.ID, err)
	}
	var parents []string
	for name, value := range fields {
		if id, ok := strings.CutPrefix(name, FieldAfterPrefix); ok && value == "1" {
			parents = append(parents, id)
		}
	}
	where, err := locate(ctx, parents)
	if err != nil {
		return fmt.Errorf("look up parents of %s: %w", child.ID, err)
	}
	for _, id := range parents {
		if where[id] == "" {
			err = settleChildren(ctx, rdb, endedParent{id: id, state: "-"}, []Ref{child})
		} else {
			_, err = Register(ctx, rdb, Ref{where[id], id}, []Ref{child})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Bounds of one call for children: cancelling childrenAtOnce takes Redis about 2 ms.
const (
	childrenAtOnce   = 100
	registeredAtOnce = 500     // children that one call registers
	outputsAtOnce    = 1 << 20 // bytes of the copies of their parent's output
)

const (
	// parentsAtOnce is how many entries of an outbox are read at once.
	parentsAtOnce = 100
	// stepWithin bounds one call; a longer one counts as the failure of a node.
	stepWithin = 5 * time.Second
)

// ReleaseAllChildren releases or cancels the descendants of all ended jobs of the queue, and
// calls each after each parent. It continues after an error, as queues may be on different
// nodes, and returns all of them; what failed stays in the outbox.
func ReleaseAllChildren(ctx context.Context, rdb redis.UniversalClient, queue string, each func()) error {
	c := childReleaser{rdb: rdb, failed: map[string]bool{}}
	for skip := 0; ctx.Err() == nil; {
		parents, err := undelivered(ctx, rdb, queue, skip, parentsAtOnce)
		if err != nil {
			return errors.Join(append(c.errs, err)...)
		}
		for _, p := range parents {
			if !c.releaseDescendants(ctx, p) {
				skip++
			}
			each()
		}
		if len(parents) < parentsAtOnce || c.failed[queue] {
			return errors.Join(c.errs...)
		}
	}
	return errors.Join(append(c.errs, ctx.Err())...)
}

// ReleaseChildren is ReleaseAllChildren for one parent.
func ReleaseChildren(ctx context.Context, rdb redis.UniversalClient, parent Ref) error {
	c := childReleaser{rdb: rdb, failed: map[string]bool{}}
	c.releaseDescendants(ctx, parent)
	return errors.Join(c.errs...)
}

// childReleaser releases or cancels the children of ended jobs.
type childReleaser struct {
	rdb    redis.UniversalClient
	failed map[string]bool // queues of failed calls, which it skips
	errs   []error         // the first one of each failed queue
}

func (c *childReleaser) fail(queue string, err error) {
	if !c.failed[queue] {
		c.failed[queue] = true
		c.errs = append(c.errs, err)
	}
}

// releaseDescendants reports whether no descendant is left to release or cancel.
func (c *childReleaser) releaseDescendants(ctx context.Context, parent Ref) bool {
	all := true
	for open := []Ref{parent}; len(open) > 0; {
		parent, open = open[0], open[1:]
		cancelled, done := c.releaseChildren(ctx, parent)
		all = all && done
		open = append(open, cancelled...)
	}
	return all
}

// releaseChildren releases or cancels the children of one job. It returns the cancelled
// ones, and whether none is left.
func (c *childReleaser) releaseChildren(ctx context.Context, parent Ref) (cancelled []Ref, all bool) {
	run := func(s *Script, args ...any) *redis.Cmd {
		ctx, cancel := context.WithTimeout(ctx, stepWithin)
		defer cancel()
		return s.Run(ctx, c.rdb, []string{PendingKey(parent.Queue)}, append([]any{parent.Queue, parent.ID}, args...)...)
	}
	for !c.failed[parent.Queue] {
		reply, err := run(outboxScript, childrenAtOnce).StringSlice()
		if err != nil || len(reply) < 4 {
			c.fail(parent.Queue, fmt.Errorf("read children of %s: %w", parent.ID, err))
			return cancelled, false
		}
		end, endedAt, names := endedParent{parent.ID, reply[0], reply[1], reply[3]}, reply[2], reply[4:]
		if len(names) == 0 {
			return cancelled, true
		}
		var children []Ref
		done := []any{endedAt}
		for _, n := range names {
			if r, ok := parseRef(n); !ok {
				done = append(done, n)
			} else if !c.failed[r.Queue] {
				children = append(children, r)
			}
		}
		// A set has no order. Siblings run in the order of their ids, as they were enqueued.
		slices.SortFunc(children, func(a, b Ref) int { return strings.Compare(a.ID, b.ID) })
		for queue, err := range settleByQueue(ctx, c.rdb, end, children) {
			c.fail(queue, err)
		}
		for _, child := range children {
			if c.failed[child.Queue] {
				continue
			}
			done = append(done, child.String())
			if end.state != StateCompleted {
				cancelled = append(cancelled, child)
			}
		}
		if len(done) == 1 {
			return cancelled, false
		}
		left, err := run(childrenReleasedScript, done...).Int64()
		if err != nil {
			c.fail(parent.Queue, fmt.Errorf("remove released children of %s: %w", parent.ID, err))
			return cancelled, false
		}
		if left == 0 {
			return cancelled, true
		}
	}
	return cancelled, false
}

// endedParent is a parent that has ended. Its state is "-" if it does not exist any more.
type endedParent struct{ id, state, problem, output string }

// maxOutputs bounds the outputs of all parents that a child keeps, in bytes.
const maxOutputs = 1 << 20

var noOutputs = NoOutput(fmt.Sprintf("the outputs of all parents have more than the %d bytes together that a job keeps", maxOutputs))

// settleChildren releases or cancels children by the state of their parent.
func settleChildren(ctx context.Context, rdb redis.UniversalClient, parent endedParent, children []Ref) error {
	return errors.Join(slices.Collect(maps.Values(settleByQueue(ctx, rdb, parent, children)))...)
}

// settleByQueue is settleChildren with the errors by queue. It is idempotent.
func settleByQueue(ctx context.Context, rdb redis.UniversalClient, parent endedParent, children []Ref) map[string]error {
	byQueue := map[string][]any{}
	for _, c := range children {
		byQueue[c.Queue] = append(byQueue[c.Queue], c.ID)
	}
	errs := map[string]error{}
	for queue, ids := range byQueue {
		for part := range slices.Chunk(ids, max(1, min(childrenAtOnce, outputsAtOnce/max(1, len(parent.output))))) {
			args := append([]any{queue, parent.id, parent.state, parent.cancelReason(), parent.output, maxOutputs, noOutputs}, part...)
			call, cancel := context.WithTimeout(ctx, stepWithin)
			err := parentEndedScript.Run(call, rdb, []string{PendingKey(queue)}, args...).Err()
			cancel()
			if err != nil {
				errs[queue] = fmt.Errorf("release children of %s: %w", parent.id, err)
				break
			}
		}
	}
	return errs
}

// cancelReason is the last error of a child whose parent did not complete.
func (p endedParent) cancelReason() string {
	switch p.state {
	case StateCompleted:
		return ""
	case "-":
		return "parent " + p.id + " does not exist any more"
	case StateExpired:
		return "parent " + p.id + " expired"
	}
	reason := "parent " + p.id + " failed"
	if p.state == StateCancelled {
		reason = "parent " + p.id + " was cancelled"
	}
	if p.problem != "" && p.problem != p.state {
		reason += ": " + rootCause(p.problem)
	}
	return reason
}

// rootCause keeps the first and the last generation only, so that reasons do not grow down
// the tree.
func rootCause(problem string) string {
	if rest, ok := strings.CutPrefix(problem, "parent "); ok {
		_, rest, _ = strings.Cut(rest, " ") // its id
		if cause, ok := strings.CutPrefix(rest, "was cancelled: "); ok && strings.HasPrefix(cause, "parent ") {
			return cause
		}
	}
	return problem
}

// ParentOutputs reads the outputs of completed parents that a job keeps: FieldOutput of each by
// the name of its field. Errors: Redis's.
func ParentOutputs(ctx context.Context, rdb redis.UniversalClient, queue, id string, parents []string) (map[string]string, error) {
	names := make([]string, len(parents))
	for i, parent := range parents {
		names[i] = FieldParentOutputPrefix + parent
	}
	values, err := rdb.HMGet(ctx, TaskKey(queue, id), names...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the outputs of the parents of %s: %w", id, err)
	}
	out := map[string]string{}
	for i, v := range values {
		if text, ok := v.(string); ok {
			out[names[i]] = text
		}
	}
	return out, nil
}

// Undelivered lists ended parents of the queue whose children are not released or
// cancelled yet, the oldest first.
func Undelivered(ctx context.Context, rdb redis.UniversalClient, queue string, limit int) ([]Ref, error) {
	return undelivered(ctx, rdb, queue, 0, limit)
}

func undelivered(ctx context.Context, rdb redis.UniversalClient, queue string, skip, limit int) ([]Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWithin)
	defer cancel()
	ids, err := rdb.ZRange(ctx, OutboxKey(queue), int64(skip), int64(skip+limit-1)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the outbox of %s: %w", queue, err)
	}
	out := make([]Ref, len(ids))
	for i, id := range ids {
		out[i] = Ref{queue, id}
	}
	return out, nil
}

// ParentNamed returns the id of a parent by its id or by the end of it after a colon.
func ParentNamed(after []string, name string) (id string, ok bool) {
	if slices.Contains(after, name) {
		return name, true
	}
	for _, parent := range after {
		if strings.HasSuffix(parent, ":"+name) {
			if id != "" && id != parent {
				return "", false
			}
			id = parent
		}
	}
	return id, id != ""
}
