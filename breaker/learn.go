package breaker

import (
	"math"
	"time"

	"github.com/tidegate/tidegate/breaker/internal/learner"
	"github.com/tidegate/tidegate/breaker/internal/policy"
)

// learned returns the limit of a record, nil if nothing is learned yet.
func (r *record) learned() *LearnedLimit {
	if apart := r.pace(); apart > 0 {
		return &LearnedLimit{
			Calls: 1, Window: time.Duration(apart) * time.Millisecond, RatePerSec: 1000 / float64(apart),
			Confidence: min(1, float64(r.Spaced)/policy.PaceSure), Since: instant(r.QuietSince),
		}
	}
	s := r.Known()
	if r.LearnedSince == 0 || s.Pace.Stage == learner.Unmeasured && s.Slots.Number() == 0 {
		return nil
	}
	l := &LearnedLimit{Since: instant(r.LearnedSince), Confidence: s.Confidence(), Concurrency: s.Slots.Number()}
	calls, window := s.Pace.Length/max(s.Pace.Slow, 1e-9), s.Pace.Length
	l.Windows = s.Windows()
	if s.Whole.Quota > 0 {
		calls, window = s.Whole.Quota, s.Whole.Hi
		l.Used, l.ResetsAt = int(r.RoundUsed), time.UnixMicro(r.RoundStarted+int64(window*1e6))
	}
	if s.Pace.Stage != learner.Unmeasured {
		l.Calls, l.RatePerSec = max(1, int(math.Round(calls))), calls/window
		l.Window = time.Duration(window * float64(time.Second)).Round(time.Millisecond)
	}
	return l
}
