package store

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var (
	pageScript    = redis.NewScript(source("order", "page"))
	outlineScript = redis.NewScript(source("outline"))
)

// ListKind is how a list or set is paged.
type ListKind string

// The kinds.
const (
	PagedList    ListKind = "list"    // pushed on the left, popped from the right
	PagedSet     ListKind = "set"     // by score, from the highest down
	GrowingSet   ListKind = "growing" // a set that jobs enter at its top
	UnsortedList ListKind = ""        // read as a whole
)

// PageArgs ask for the next ids of a list or set, the newest first.
type PageArgs struct {
	Key  string
	Kind ListKind
	// Known is an id read before: of a list the leftmost one, of a set the last one; "" for
	// none. Offset, of a list, is how many were read from Known on. Score, of a set, is the
	// score of Known, and Top, of a growing one, the highest score read.
	Known, Score, Top string
	Offset            int
}

// Page is the next part of a list or set.
type Page struct {
	IDs    []string
	Scores []string // of a set
	// Newer is how many of the ids are new: in front of a list, on top of a growing set. Lost
	// is true if a list does not hold Known any more: all ids are new.
	Newer int
	Lost  bool
}

// Pages reads the next n ids of each list in one round trip. Errors: Redis's.
func Pages(ctx context.Context, rdb redis.UniversalClient, n int, asked []PageArgs) ([]Page, error) {
	eval := func(c redis.Scripter, i int) *redis.Cmd {
		a, keys := asked[i], []string{asked[i].Key}
		switch a.Kind {
		case UnsortedList:
			cmd := redis.NewCmd(ctx, "LRANGE", a.Key, 0, -1)
			if pipe, ok := c.(redis.Pipeliner); ok {
				_ = pipe.Process(ctx, cmd)
			}
			return cmd
		case PagedList:
			return pageScript.EvalSha(ctx, c, keys, string(a.Kind), n, a.Known, a.Offset)
		case PagedSet, GrowingSet:
		}
		return pageScript.EvalSha(ctx, c, keys, string(a.Kind), n, a.Known, cmp.Or(a.Score, "+inf"), a.Top)
	}
	cmds, err := evalLoaded(ctx, rdb, pageScript, len(asked), eval)
	if err != nil {
		return nil, err
	}
	out := make([]Page, len(asked))
	for i, cmd := range cmds {
		v, err := valuesOf(cmd)
		if err != nil {
			return nil, err
		}
		out[i] = pageOf(asked[i].Kind, v)
	}
	return out, nil
}

func pageOf(kind ListKind, v *values) (p Page) {
	switch kind {
	case PagedList:
		p.Lost, p.Newer = v.integer() == 0, v.integer()
	case GrowingSet:
		p.Newer = v.integer()
	case PagedSet, UnsortedList:
	}
	for len(v.left) > 0 {
		p.IDs = append(p.IDs, v.text())
		if kind == PagedSet || kind == GrowingSet {
			p.Scores = append(p.Scores, v.text())
		}
	}
	return p
}

// Outlines reads fields of task hashes, by their keys, in one round trip: an outline of the
// message instead of the message itself, as FieldMsg. Fields that a hash does not have are
// left out. size is how many bytes were read of each. Errors: Redis's.
func Outlines(ctx context.Context, rdb redis.UniversalClient, keys, fields []string) (out []map[string]string, size []int, err error) {
	args := []any{FieldOutline}
	for _, name := range fields {
		args = append(args, name)
	}
	cmds, err := evalLoaded(ctx, rdb, outlineScript, len(keys), func(c redis.Scripter, i int) *redis.Cmd {
		return outlineScript.EvalSha(ctx, c, keys[i:i+1], args...)
	})
	if err != nil {
		return nil, nil, err
	}
	names := append([]string{FieldMsg}, fields...)
	out, size = make([]map[string]string, len(keys)), make([]int, len(keys))
	for k, cmd := range cmds {
		v, err := valuesOf(cmd)
		if err != nil {
			return nil, nil, err
		}
		out[k] = make(map[string]string, len(names))
		for i, value := range v.left {
			if text, ok := value.(string); ok { // nil where there is no such field
				out[k][names[i]] = text
				size[k] += len(text)
			}
		}
	}
	return out, size, nil
}

// evalLoaded runs a read-only script several times in one round trip, and all of it again if
// Redis did not know the script, so that all read about the same moment.
func evalLoaded(ctx context.Context, rdb redis.UniversalClient, s *redis.Script, n int, eval func(c redis.Scripter, i int) *redis.Cmd) ([]*redis.Cmd, error) {
	read := func() ([]*redis.Cmd, error) {
		cmds := make([]*redis.Cmd, n)
		_, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
			for i := range cmds {
				cmds[i] = eval(pipe, i)
			}
			return nil
		})
		return cmds, err
	}
	cmds, err := read()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		if err := s.Load(ctx, rdb).Err(); err != nil {
			return nil, err
		}
		return read()
	}
	return cmds, err
}
