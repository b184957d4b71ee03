package publisher

import (
	"testing"
	"time"
)

// Calls whose jobs come late do not begin all at once, and catch up.
func TestLateStartsAreSpaced(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ planned, now, want []int }{
		"in time":              {[]int{100, 200, 300}, []int{50, 50, 50}, []int{100, 200, 300}},
		"late":                 {[]int{100, 200, 300, 400, 500}, []int{320, 320, 320, 320, 320}, []int{320, 370, 420, 470, 520}},
		"late, then in time":   {[]int{100, 200, 600}, []int{250, 250, 250}, []int{250, 300, 600}},
		"granted for once":     {[]int{100, 100, 100}, []int{150, 150, 150}, []int{150, 150, 150}},
		"in another order":     {[]int{200, 100, 300}, []int{50, 50, 50}, []int{200, 100, 300}},
		"long after the first": {[]int{100, 100_000}, []int{150, 99_000}, []int{150, 100_000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			in := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
			var s starts
			for i := range tc.planned {
				at := s.next(in(tc.planned[i]), in(tc.now[i]))
				if want := in(tc.want[i]); !at.Equal(want) {
					t.Errorf("call %d begins at %v, want %v", i, at.Sub(began), want.Sub(began))
				}
			}
		})
	}
}
