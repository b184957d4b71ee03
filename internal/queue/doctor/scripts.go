package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"
)

var (
	activeScript     = store.DoctorScript("active")
	entriesScript    = store.DoctorScript("entries")
	childrenScript   = store.DoctorScript("children")
	listScript       = store.DoctorScript("list")
	tombstonesScript = store.DoctorScript("tombstones")
	lookScript       = store.DoctorScript("look")
	lostScript       = store.DoctorScript("lost")
)

// call is one script on one queue.
type call struct {
	script *store.Script
	queue  string
	args   []any
}

// all returns the arguments, with the ones that all scripts share.
func (p *pass) all(c call) []any {
	dry := "0"
	if p.o.DryRun {
		dry = "1"
	}
	return append([]any{c.queue, dry, p.o.By}, c.args...)
}

func (p *pass) run(ctx context.Context, s *store.Script, queue string, args ...any) ([]any, error) {
	c := call{script: s, queue: queue, args: args}
	return s.Run(ctx, p.rdb, []string{store.PendingKey(queue)}, p.all(c)...).Slice()
}

// runAll sends scripts in one round trip and returns their replies in order.
func (p *pass) runAll(ctx context.Context, calls []call) ([][]any, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	cmds, err := redispipe.Each(ctx, p.rdb, calls, func(pipe redis.Pipeliner, c call) *redis.Cmd {
		return c.script.EvalSha(ctx, pipe, []string{store.PendingKey(c.queue)}, p.all(c)...)
	})
	if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return nil, err
	}
	out := make([][]any, len(calls))
	for i, c := range calls {
		reply, err := cmds[i].Slice()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			// A pipeline cannot fall back to EVAL by itself.
			reply, err = p.run(ctx, c.script, c.queue, c.args...)
		}
		if err != nil {
			return nil, err
		}
		out[i] = reply
	}
	return out, nil
}

var errReply = errors.New("a script's reply is not valid")

// reply reads the reply of a script, and records whether it is valid.
type reply struct {
	values []any
	bad    bool
}

func (r *reply) at(i int) any {
	if i >= len(r.values) {
		r.bad = true
		return nil
	}
	return r.values[i]
}

func (r *reply) int(i int) int {
	n, ok := r.at(i).(int64)
	r.bad = r.bad || !ok
	return int(n)
}

func (r *reply) text(i int) string {
	s, ok := r.at(i).(string)
	r.bad = r.bad || !ok
	return s
}

func (r *reply) texts(i int) []string {
	list, ok := r.at(i).([]any)
	r.bad = r.bad || !ok
	return r.strings(list)
}

func (r *reply) strings(list []any) []string {
	out := make([]string, len(list))
	for i, v := range list {
		s, ok := v.(string)
		r.bad = r.bad || !ok
		out[i] = s
	}
	return out
}

func (r *reply) err(operation, queue string) error {
	if r.bad {
		return fmt.Errorf("%s of %s: %w", operation, queue, errReply)
	}
	return nil
}

// take counts the pairs of kind and id that a script has found.
func (p *pass) take(queue, where string, pairs []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		p.found.add(pairs[i], queue, where, pairs[i+1])
	}
}
