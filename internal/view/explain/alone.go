package explain

import (
	"fmt"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// Alone says how many jobs of a destination its API refuses while it accepts others.
func Alone(r jobs.RefusedAlone, now time.Time) string {
	out := fmt.Sprintf("%s since %s, %s", Count(r.Jobs, "job", "jobs"), At(r.Since, now), Count(r.Refusals, "refusal", "refusals"))
	if r.Failed > 0 {
		out += fmt.Sprintf(", %d failed", r.Failed)
	}
	return fmt.Sprintf("%s; the last one, %s, was %s", out, r.Job, r.Text)
}
