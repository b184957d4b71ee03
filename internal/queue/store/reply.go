package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var errReply = errors.New("the reply of the script is not as expected")

// values reads the reply of a script from left to right. A value of another type reads as
// zero; missing ones make err errReply.
type values struct {
	left []any
	err  error
}

func valuesOf(cmd *redis.Cmd) (*values, error) {
	reply, err := cmd.Slice()
	return &values{left: reply}, err
}

func (v *values) next() any {
	if len(v.left) == 0 {
		v.err = errReply
		return nil
	}
	first := v.left[0]
	v.left = v.left[1:]
	return first
}

func (v *values) text() string {
	s, _ := v.next().(string)
	return s
}

func (v *values) integer() int {
	switch n := v.next().(type) {
	case int64:
		return int(n)
	case string:
		i, _ := strconv.Atoi(n)
		return i
	}
	return 0
}

func (v *values) list() *values {
	list, ok := v.next().([]any)
	if !ok {
		return &values{err: errReply}
	}
	return &values{left: list}
}

// instant reads unix milliseconds; zero if there are none.
func (v *values) instant() time.Time {
	ms, err := strconv.ParseInt(v.text(), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// evalAll runs n scripts in one round trip, each by eval. A pipeline cannot fall back to EVAL by
// itself: if Redis, or a node of a Cluster, does not know the script, run loads it.
func evalAll(ctx context.Context, rdb redis.UniversalClient, n int, eval func(c redis.Scripter, i int) *redis.Cmd, run func(i int) *redis.Cmd) []*redis.Cmd {
	cmds := make([]*redis.Cmd, n)
	left := make([]int, n)
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
			for _, i := range left {
				cmds[i] = eval(pipe, i)
			}
			return nil
		})
		var unknown []int
		for _, i := range left {
			if cmds[i] == nil {
				cmds[i] = redis.NewCmdResult(nil, err)
			} else if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				unknown = append(unknown, i)
			}
		}
		left = nil
		if len(unknown) > 0 {
			cmds[unknown[0]] = run(unknown[0])
			left = unknown[1:]
		}
	}
	return cmds
}
