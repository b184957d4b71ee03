package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/redispipe"
)

// A job moves to a queue that may be in another slot of a Cluster, on another node, in
// steps of which each is one script:
//
//  1. create it there, in the state moving: nothing starts it
//  2. remove it here, if it waits and is what was read
//  3. start it there; or delete it there, if 2 found it changed
//
// After a crash FinishMoves continues at 2 for all jobs in the state moving. 2 records what
// it removed until 3 is done, so that a job which has finished here meanwhile, and whose
// retention is over, is not taken for a removed one.
//
// A job is registered with its parents under its new queue before it is read, so that the end
// of none is missed, and once more after 3. The job's own children need no change: they refer
// to ids only.
func moveScript(name string) *Script { return script("move", name) }

var (
	moveReadScript     = moveScript("move_read")
	moveCreateScript   = moveScript("move_create")
	moveChildrenScript = moveScript("move_children")
	moveRemoveScript   = moveScript("move_remove")
	moveSettleScript   = moveScript("move_settle")
)

const (
	// MovesPerScript is how many jobs move at once.
	MovesPerScript = 100
	// movedBytes bounds the records read at once; a larger one goes alone.
	movedBytes = 1 << 20
	// childrenPerScan is how many children of a job that moves are copied at once.
	childrenPerScan = 1000
)

// MovingKey is the ZSET of the jobs that are moving to a queue, by when they were
// created there, unix milliseconds.
func MovingKey(queue string) string { return ParkedKey(queue, StateMoving) }

// MovedKey is the ZSET of the jobs that were removed from a queue and may not have
// started in another: "<id> <digest>", by when that was, unix milliseconds.
func MovedKey(queue string) string { return ours(queue, "moved") }

// MoveResult is the result for one job.
type MoveResult struct {
	// State that it was in; "" if it did not wait.
	State string
	// Moved is true if it is in the other queue now.
	Moved bool
	// Exists is true if the other queue has a job with its id: it stays.
	Exists bool
}

// Move moves jobs of one queue to another, which must be in the set of queues, in the order
// given. A job with neither Moved nor Exists did not wait any more, or changed meanwhile.
// After an error FinishMoves finishes the rest; results hold what was done before it.
func Move(ctx context.Context, rdb redis.UniversalClient, from, to, by string, ids []string) ([]MoveResult, error) {
	m := mover{rdb: rdb, from: from, to: to, by: by}
	results := make([]MoveResult, 0, len(ids))
	for len(ids) > 0 {
		n, err := m.move(ctx, ids[:min(len(ids), MovesPerScript)], &results)
		if err != nil {
			return append(results, make([]MoveResult, len(ids)-n)...), fmt.Errorf("move jobs from %s to %s: %w", from, to, err)
		}
		ids = ids[n:]
	}
	return results, nil
}

// FinishMoves continues interrupted moves to a queue. It returns how many jobs it found, each
// of which is then in one of the two queues.
func FinishMoves(ctx context.Context, rdb redis.UniversalClient, queue string) (int, error) {
	found := 0
	for {
		ids, err := rdb.ZRange(ctx, MovingKey(queue), 0, MovesPerScript-1).Result()
		if err != nil {
			return found, fmt.Errorf("read the jobs that move to %s: %w", queue, err)
		}
		if len(ids) == 0 {
			return found, nil
		}
		n, err := finishMoves(ctx, rdb, queue, ids)
		found += n
		if err != nil {
			return found, fmt.Errorf("finish moves to %s: %w", queue, err)
		}
		if n == 0 {
			return found, nil // entries without a job, which the doctor takes out
		}
	}
}

func finishMoves(ctx context.Context, rdb redis.UniversalClient, queue string, ids []string) (int, error) {
	cmds := make([]*redis.SliceCmd, len(ids))
	if _, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = pipe.HMGet(ctx, TaskKey(queue, id), FieldMoveFrom, FieldMoveDigest, FieldChildren, FieldWaits)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	bySource := map[string][]moving{}
	n := 0
	for i, cmd := range cmds {
		var f [4]string
		for k, v := range cmd.Val() {
			f[k], _ = v.(string)
		}
		if f[0] != "" {
			bySource[f[0]] = append(bySource[f[0]], moving{id: ids[i], digest: f[1], parent: f[2] != "", child: f[3] != ""})
			n++
		}
	}
	var errs []error
	for from, jobs := range bySource {
		m := mover{rdb: rdb, from: from, to: queue}
		_, err := m.handOver(ctx, jobs)
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// mover moves jobs from one queue to another.
type mover struct {
	rdb          redis.UniversalClient
	from, to, by string
}

// moving is a job between two queues.
type moving struct {
	id, digest    string
	state         string
	fields        []string // names and values in turn
	parent, child bool
}

// move moves the first of the jobs, as many as one read returns. It appends their results and
// returns their number.
func (m *mover) move(ctx context.Context, ids []string, results *[]MoveResult) (int, error) {
	jobs, err := m.read(ctx, ids)
	if err != nil {
		return 0, err
	}
	announced, err := m.announce(ctx, jobs)
	if err != nil {
		return 0, err
	}
	if announced {
		// The registration changes parents among them.
		if jobs, err = m.read(ctx, ids); err != nil {
			return 0, err
		}
	}
	created, err := m.create(ctx, jobs)
	if err != nil {
		return 0, err
	}
	var ours []moving
	for i, c := range created {
		if c == moveCreated {
			ours = append(ours, jobs[i])
		}
	}
	moved, err := m.handOver(ctx, ours)
	for i, j := range jobs {
		*results = append(*results, MoveResult{State: j.state, Moved: moved[j.id], Exists: created[i] == moveExists})
	}
	return len(jobs), err
}

// handOver does the steps after the creation of jobs in the other queue, and returns the jobs
// that are there now.
func (m *mover) handOver(ctx context.Context, jobs []moving) (map[string]bool, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if err := m.copyChildren(ctx, jobs); err != nil {
		return nil, err
	}
	removed, err := m.remove(ctx, jobs)
	if err != nil {
		return nil, err
	}
	if err := m.settle(ctx, jobs, removed); err != nil {
		return removed, err
	}
	return removed, m.readopt(ctx, jobs, removed)
}

// read reads the jobs; those that do not wait have no state.
func (m *mover) read(ctx context.Context, ids []string) ([]moving, error) {
	args := []any{m.from, movedBytes}
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := moveReadScript.Run(ctx, m.rdb, []string{PendingKey(m.from)}, args...).Slice()
	if err != nil {
		return nil, fmt.Errorf("read them: %w", err)
	}
	jobs := make([]moving, 0, len(reply))
	for i, id := range ids[:min(len(ids), len(reply))] {
		j := moving{id: id}
		if values, _ := reply[i].([]any); len(values) > 0 {
			j.take(m.to, values)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// take sets a job from the reply of move_read.lua. A task of another program, and a record
// that cannot be read, stay like jobs that do not wait.
func (j *moving) take(to string, values []any) {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i], _ = v.(string)
	}
	var fields []string
	state, readable := "", false
	for i := 1; i+1 < len(texts); i += 2 {
		name, value := texts[i], texts[i+1]
		switch name {
		case FieldState:
			state = value
			continue
		case FieldTombstone, FieldPlace, FieldRun, FieldEvents, FieldOutline:
			continue // of its life in the other queue, or made below
		case FieldMsg:
			msg, err := DecodeMessage([]byte(value))
			if err != nil || msg.Type != TaskType {
				return
			}
			readable = true
			msg.Queue = to
			encoded := msg.AppendTo(nil)
			if value = string(encoded); len(msg.Payload) > OutlineAbove {
				from, until := PayloadSpan(msg.Payload)
				fields = append(fields, FieldOutline, value[:from]+value[until:])
			}
		case FieldChildren:
			j.parent = true
		case FieldWaits:
			j.child = true
		}
		fields = append(fields, name, value)
	}
	if readable {
		j.state, j.digest, j.fields = state, texts[0], fields
	}
}

// announce registers jobs with their parents under the other queue, and reports whether there
// are any parents.
func (m *mover) announce(ctx context.Context, jobs []moving) (bool, error) {
	children := map[string][]Ref{}
	for _, j := range jobs {
		for i := 0; i+1 < len(j.fields); i += 2 {
			if parent, ok := strings.CutPrefix(j.fields[i], FieldAfterPrefix); ok && j.fields[i+1] == "1" {
				children[parent] = append(children[parent], Ref{m.to, j.id})
			}
		}
	}
	if len(children) == 0 {
		return false, nil
	}
	parents := make([]string, 0, len(children))
	for id := range children {
		parents = append(parents, id)
	}
	where, err := namespaceOf(m.to).locateAnywhere(ctx, m.rdb, parents)
	if err != nil {
		return false, err
	}
	for id, refs := range children {
		if where[id] == "" {
			continue // readopt cancels them
		}
		for part := range slices.Chunk(refs, childrenAtOnce) {
			if _, err := Register(ctx, m.rdb, Ref{where[id], id}, part); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// Results of move_create.lua.
const (
	moveExists  = 0
	moveCreated = 1
)

// create creates jobs in the other queue; its results are those of move_create.lua, and -1
// for a job that does not wait.
func (m *mover) create(ctx context.Context, jobs []moving) ([]int64, error) {
	destination, _, _ := ParseQueue(m.from)
	args := []any{m.to, m.from, "from " + destination, m.by}
	var asked []int
	created := make([]int64, len(jobs))
	for i, j := range jobs {
		if created[i] = -1; j.state == "" {
			continue
		}
		asked = append(asked, i)
		args = append(args, j.id, j.digest, j.state, j.created(), len(j.fields))
		for _, text := range j.fields {
			args = append(args, text)
		}
	}
	if len(asked) == 0 {
		return created, nil
	}
	answers, err := moveCreateScript.Run(ctx, m.rdb, []string{PendingKey(m.to)}, args...).Int64Slice()
	if err != nil || len(answers) != len(asked) {
		return nil, fmt.Errorf("create them: %w", errOr(err))
	}
	for k, i := range asked {
		created[i] = answers[k]
	}
	return created, nil
}

// created returns when the job was created, in unix milliseconds; "0" if unknown.
func (j *moving) created() string {
	for i := 0; i+1 < len(j.fields); i += 2 {
		if j.fields[i] == FieldMsg {
			if msg, err := DecodeMessage([]byte(j.fields[i+1])); err == nil && msg.Headers[HeaderCreated] != "" {
				return msg.Headers[HeaderCreated]
			}
		}
	}
	return "0"
}

// copyChildren copies the children of jobs to the other queue. A child that is added before
// the job is removed changes the job, so that it is not removed.
func (m *mover) copyChildren(ctx context.Context, jobs []moving) error {
	for _, j := range jobs {
		for cursor, more := uint64(0), j.parent; more; more = cursor != 0 {
			refs, next, err := m.rdb.SScan(ctx, ChildrenKey(m.from, j.id), cursor, "", childrenPerScan).Result()
			if err == nil && len(refs) > 0 {
				args := []any{m.to, j.id, j.digest}
				for _, r := range refs {
					args = append(args, r)
				}
				err = moveChildrenScript.Run(ctx, m.rdb, []string{PendingKey(m.to)}, args...).Err()
			}
			if err != nil {
				return fmt.Errorf("copy children of %s: %w", j.id, err)
			}
			cursor = next
		}
	}
	return nil
}

// remove removes jobs from their queue, and returns the removed ones.
func (m *mover) remove(ctx context.Context, jobs []moving) (map[string]bool, error) {
	args := []any{m.from}
	for _, j := range jobs {
		args = append(args, j.id, j.digest)
	}
	answers, err := moveRemoveScript.Run(ctx, m.rdb, []string{PendingKey(m.from)}, args...).Int64Slice()
	if err != nil || len(answers) != len(jobs) {
		return nil, fmt.Errorf("remove them: %w", errOr(err))
	}
	removed := make(map[string]bool, len(jobs))
	for i, j := range jobs {
		removed[j.id] = answers[i] == 1
	}
	return removed, nil
}

// settle starts the jobs that were removed from their queue, and deletes the others in
// the new one.
func (m *mover) settle(ctx context.Context, jobs []moving, removed map[string]bool) error {
	args := []any{m.to}
	var entries []any
	for _, j := range jobs {
		start := "0"
		if removed[j.id] {
			start = "1"
			entries = append(entries, j.id+" "+j.digest)
		}
		args = append(args, j.id, j.digest, start)
	}
	if err := moveSettleScript.Run(ctx, m.rdb, []string{PendingKey(m.to)}, args...).Err(); err != nil {
		return fmt.Errorf("start them: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	if err := m.rdb.ZRem(ctx, MovedKey(m.from), entries...).Err(); err != nil {
		return fmt.Errorf("forget that they were removed: %w", err)
	}
	return nil
}

// readopt registers jobs again with parents that may have finished during the move. The
// doctor does so after a crash.
func (m *mover) readopt(ctx context.Context, jobs []moving, removed map[string]bool) error {
	ask := AskParents(m.rdb)
	for _, j := range jobs {
		if j.child && removed[j.id] {
			if err := ask(ctx, m.to, j.id); err != nil {
				return err
			}
		}
	}
	return nil
}

var errAnswer = errors.New("the script's answer is not what was expected")

// errOr returns err, or errAnswer if it is nil.
func errOr(err error) error {
	if err != nil {
		return err
	}
	return errAnswer
}
