package modeltest

import (
	"math/bits"
	"time"

	"pgregory.net/rapid"
)

// op is something that can happen.
type op struct {
	weight int // how often, next to the others
	name   string
	can    func() bool
	do     func(*rapid.T)
}

// drawOp draws an operation that can happen now.
func drawOp(t *rapid.T, ops []op) op {
	var names []int
	for i, o := range ops {
		if o.can() {
			for range o.weight {
				names = append(names, i)
			}
		}
	}
	return ops[names[index(len(names)).Draw(t, "op")]]
}

// index draws from 0 to n-1. rapid's own generators prefer what stands first, so that
// the last of many operations would hardly ever be played.
func index(n int) *rapid.Generator[int] {
	return rapid.Custom(func(t *rapid.T) int {
		u, size := 0, bits.Len(uint(n))+4
		for range size {
			u <<= 1
			if rapid.Bool().Draw(t, "") {
				u |= 1
			}
		}
		return u * n >> size
	})
}

// oneOf draws one of some values. The first is the simplest.
func oneOf[V any](t *rapid.T, label string, values ...V) V {
	return rapid.Map(index(len(values)), func(i int) V { return values[i] }).Draw(t, label)
}

// oneIn draws true once in n times.
func oneIn(t *rapid.T, n int, label string) bool { return index(n).Draw(t, label) == n-1 }

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
