package breaker

import (
	"testing"
)

func TestLineKeepsOrder(t *testing.T) {
	t.Parallel()
	l := newWaitLines()
	a, b, c, d := l.join("x"), l.join("x"), l.join("x"), l.join("x")
	other := l.join("y")
	expect := func(step string, first *waiter, behind ...*waiter) {
		t.Helper()
		if !isFirst(first) {
			t.Errorf("%s: the first does not have its turn", step)
		}
		for n, p := range behind {
			if isFirst(p) {
				t.Errorf("%s: number %d behind it has its turn, too", step, n+1)
			}
		}
	}
	expect("at the beginning", a, b, c, d)
	if !isFirst(other) {
		t.Error("a line holds up another one")
	}
	c.leave()
	expect("after one in the middle has left", a, b, d)
	a.leave()
	expect("after the first has left", b, d)
	b.leave()
	expect("after the next one", d)
	d.leave()
	other.leave()
	if !l.empty("x") || len(l.of) != 0 {
		t.Errorf("what is left of the lines: %v", l.of)
	}
}

func isFirst(p *waiter) bool {
	select {
	case <-p.first:
		return true
	default:
		return false
	}
}
