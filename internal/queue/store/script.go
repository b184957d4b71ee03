package store

import (
	"context"
	"embed"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed lua
var luaFiles embed.FS

// source reads scripts of this package, one behind the other.
func source(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		src, err := luaFiles.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // embedded at build time: cannot be missing
		}
		out.Write(src)
	}
	return out.String()
}

// Script is a script on the keys of one queue. The script derives most keys from the ids that it
// finds. While a Cluster moves the queue's slot from one node to another, some of the keys are on
// the one node and some on the other: the script would be cut off in the middle, or take a key that
// has not arrived for a missing one. So the last of its KEYS is a key that never exists:
// Redis answers TRYAGAIN instead of starting the script, until the slot is on one node. A
// script that touches KEYS[1] alone needs none of this.
type Script struct {
	s    *redis.Script
	name string
}

var scripts = map[string]string{} // by SHA-1

// script joins files of this package to a Script, which has the name of the last file.
func script(names ...string) *Script {
	s := &Script{s: redis.NewScript(withPrelude(source(names...))), name: names[len(names)-1]}
	scripts[s.Hash()] = s.name
	return s
}

// DoctorScript returns a script of internal/queue/doctor by its name. Each script finds and repairs one kind of damage.
func DoctorScript(name string) *Script { return script("doctor/common", "doctor/"+name) }

// ScriptName is the file name of the script with the SHA-1, without extension; "" for one
// that is not ours.
func ScriptName(sha string) string { return scripts[sha] }

// Run is redis.Script.Run.
func (s *Script) Run(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	return s.s.Run(ctx, c, withGuard(keys), args...)
}

// EvalSha is redis.Script.EvalSha.
func (s *Script) EvalSha(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd {
	return s.s.EvalSha(ctx, c, withGuard(keys), args...)
}

// Load is redis.Script.Load.
func (s *Script) Load(ctx context.Context, c redis.Scripter) *redis.StringCmd {
	return s.s.Load(ctx, c)
}

// Hash is redis.Script.Hash.
func (s *Script) Hash() string { return s.s.Hash() }

// withGuard adds the key that never exists, in the slot of the others.
func withGuard(keys []string) []string {
	_, tag, _ := strings.Cut(keys[0], "{")
	tag, _, _ = strings.Cut(tag, "}")
	return append(slices.Clip(keys), GuardKey(tag))
}
