package explain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidegate/tidegate/breaker"
)

// Incidents that follow each other closely are one line with a count; pairs, other causes, those begun by
// hand and those after a quiet time are not.
func TestGroupIncidents(t *testing.T) {
	t.Parallel()
	const h, o, m = breaker.CauseHint, breaker.CauseOutage, breaker.CauseManual
	for name, test := range map[string]struct {
		causes string
		starts []int // minutes; each lasts for one, but for a last one at -1, which lasts since the one before
		want   string
	}{
		"none":                {"", nil, ""},
		"one":                 {h, []int{0}, "0+1 x1"},
		"two":                 {h + " " + h, []int{0, 3}, "0+1 x1, 3+1 x1"},
		"three":               {h + " " + h + " " + h, []int{0, 3, 6}, "0+7 x3"},
		"just close enough":   {h + " " + h + " " + h, []int{0, 10, 20}, "0+21 x3"},
		"too far apart":       {h + " " + h + " " + h, []int{0, 11, 22}, "0+1 x1, 11+1 x1, 22+1 x1"},
		"twice three":         {strings.Repeat(h+" ", 6), []int{0, 2, 4, 60, 62, 64}, "0+5 x3, 60+5 x3"},
		"another cause":       {strings.Join([]string{h, h, h, o, h, h, h}, " "), []int{0, 2, 4, 6, 8, 10, 12}, "0+5 x3, 6+1 x1, 8+5 x3"},
		"by hand":             {strings.Repeat(m+" ", 3), []int{0, 2, 4}, "0+1 x1, 2+1 x1, 4+1 x1"},
		"the last one lasts":  {strings.Repeat(h+" ", 4), []int{0, 2, 4, 6, -1}, "0+... x4"},
		"after a quiet start": {strings.Repeat(h+" ", 4), []int{0, 60, 62, 64}, "0+1 x1, 60+5 x3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
			var list []breaker.Incident
			for i, cause := range strings.Fields(test.causes) {
				started := from.Add(time.Duration(test.starts[i]) * time.Minute)
				list = append(list, breaker.Incident{
					ID: fmt.Sprint("i", i), Started: started, Ended: started.Add(time.Minute), Cause: cause,
					Wasted: 2, Probes: 1, Rescheduled: 3, Instances: []string{"w1", fmt.Sprint("w", i)},
				})
			}
			if n := len(list); len(test.starts) > n {
				list[n-1].Ended = time.Time{}
			}
			var got []string
			for _, f := range GroupIncidents(list) {
				length := "..."
				if !f.Ended.IsZero() {
					length = fmt.Sprint(f.Ended.Sub(f.Started).Minutes())
				}
				got = append(got, fmt.Sprintf("%g+%s x%d", f.Started.Sub(from).Minutes(), length, f.Openings))
				if f.Wasted != 2*f.Openings || f.Probes != f.Openings || f.Rescheduled != 3*f.Openings {
					t.Errorf("sums of %+v", f)
				}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			if len(list) > 1 && list[0].Wasted != 2 {
				t.Error("the list was changed")
			}
		})
	}
}
