package modeltest

import (
	"flag"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Random sequences of what people, applications, workers and time do break none of the
// invariants, after each step, and when all is let go on: every job ends, and leaves
// nothing behind.
func TestModel(t *testing.T) {
	t.Parallel()
	setDefault(t, "rapid.checks", strconv.Itoa(sequences/parts))
	setDefault(t, "rapid.seed", seed)
	setDefault(t, "rapid.steps", "50")
	setDefault(t, "rapid.nofailfile", "true") // the seed is enough
	t.Cleanup(func() { reportPlayed(t) })
	for i := range parts {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, play) })
		})
	}
}

// setDefault sets a flag unless it was given.
func setDefault(t *testing.T, name, value string) {
	t.Helper()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
}

// play plays one sequence.
func play(t *rapid.T) {
	w := newWorld(t)
	defer w.close()
	ops := slices.Concat(w.clientOps(), w.workerOps())
	t.Repeat(map[string]func(*rapid.T){
		"step": func(t *rapid.T) {
			o := drawOp(t, ops)
			t.Logf("%s:", o.name)
			o.do(t)
		},
		"": func(*rapid.T) { w.check() },
	})
	w.drain()
}

// played counts what happened in all sequences, so that one can see that they are
// about something.
var played struct {
	sync.Mutex
	times map[string]int
}

func countPlayed(what string) {
	played.Lock()
	defer played.Unlock()
	if played.times == nil {
		played.times = map[string]int{}
	}
	played.times[what]++
}

func reportPlayed(t *testing.T) {
	for _, what := range slices.Sorted(maps.Keys(played.times)) {
		t.Logf("%7d × %s", played.times[what], what)
	}
}
