package bench

import (
	"slices"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/fakelimit"
)

// The figures of the comparison, for all APIs. A window of 5 s stands for one of a
// minute: all times of the contenders are scaled alike (see scale).
const (
	jobCount = 300
	quota    = 60
	window   = 5 * time.Second
	extend   = 100 * time.Millisecond // of the API that punishes
	// cooldown is what both breakers guess where the API gives no hint.
	cooldown = window / 4
	workers  = 3
	// patience is when a run is stopped.
	patience = 75 * time.Second
)

// scale is how much faster time passes here than where a window has a minute.
const scale = int(time.Minute / window)

// api is one kind of limit.
type api struct {
	name    string
	limiter fakeapi.Limiter
	// limit returns an unused limit that the API never announces; it takes the place of limiter.
	limit func() limit
	// window is the span by which refused calls are counted; 0: window.
	window time.Duration
	// slower is how many times as long calls take; 0: 1.
	slower int
	// punishes: calls while limited make it longer.
	punishes bool
	// earliest is when the n-th call, counted from 0, can be accepted at best.
	earliest func(n int) time.Duration
}

func apis() []api {
	windows := func(n int) time.Duration { return time.Duration(n/quota) * window }
	const short = window / 6
	return []api{
		{name: "fixed window", limiter: fakeapi.FixedWindow{Quota: quota, Window: window}, earliest: windows},
		{name: "sliding window", limiter: fakelimit.SlidingWindow{Quota: quota, Window: window}, earliest: windows},
		{name: "token bucket", limiter: fakelimit.TokenBucket{Rate: quota / window.Seconds(), Burst: quota}, earliest: func(n int) time.Duration {
			return time.Duration(max(0, n-quota+1)) * window / quota
		}},
		{name: "penalty", limiter: fakelimit.Penalty{Quota: quota, Window: window, Extend: extend}, punishes: true, earliest: windows},
		{
			name: "5 at once", limit: func() limit { return (&concurrent{most: 5}).take }, slower: 10,
			earliest: func(n int) time.Duration { return time.Duration(n/5) * 10 * meanLatency },
		},
		{
			name: "two windows", window: 2 * window,
			limit: func() limit {
				return both(&fixed{quota: constant(10), length: short}, &fixed{quota: constant(quota), length: 2 * window})
			},
			earliest: func(n int) time.Duration {
				return time.Duration(n/quota)*2*window + time.Duration(n%quota/10)*short
			},
		},
		{
			name: "halves", limit: func() limit {
				return (&fixed{length: window, quota: func(_, accepted int) int {
					if accepted < jobCount/2 {
						return quota
					}
					return quota / 2
				}}).take
			},
			earliest: func(n int) time.Duration {
				if n < jobCount/2 {
					return windows(n)
				}
				return windows(jobCount/2) + time.Duration(1+(n-jobCount/2)/(quota/2))*window
			},
		},
		{
			name: "others take 30 %", limit: func() limit { return (&fixed{length: window, quota: leftByOthers}).take },
			earliest: func(n int) time.Duration {
				w := 0
				for n -= leftByOthers(0, 0); n >= 0; n -= leftByOthers(w, 0) {
					w++
				}
				return time.Duration(w) * window
			},
		},
	}
}

// limit decides a call that ends at end, and reports whether it is accepted. Calls come one
// after the other.
type limit func(now, end time.Time) bool

// fixed is a window that begins with the first call after the last one's end.
type fixed struct {
	length time.Duration
	// quota returns how many calls a window accepts. Windows count from 0; accepted counts the calls of all windows.
	quota func(window, accepted int) int

	end                    time.Time
	window, used, accepted int
}

func (f *fixed) take(now, _ time.Time) bool {
	if !f.free(now) {
		return false
	}
	f.used++
	f.accepted++
	return true
}

// free reports whether a call would be accepted. It begins a window if the last has ended.
func (f *fixed) free(now time.Time) bool {
	if !now.Before(f.end) {
		if !f.end.IsZero() {
			f.window++
		}
		f.end, f.used = now.Add(f.length), 0
	}
	return f.used < f.quota(f.window, f.accepted)
}

func constant(n int) func(int, int) int { return func(int, int) int { return n } }

// leftByOthers is what another consumer leaves: of five windows in turn it takes a tenth to a half at
// their start, on average 30 %.
func leftByOthers(window, _ int) int { return quota - []int{18, 6, 30, 12, 24}[window%5] }

// both accepts what two windows do.
func both(a, b *fixed) limit {
	return func(now, end time.Time) bool {
		ok := a.free(now)
		return b.free(now) && ok && a.take(now, end) && b.take(now, end)
	}
}

// concurrent accepts at most a number of calls at once.
type concurrent struct {
	most int
	ends []time.Time
}

func (c *concurrent) take(now, end time.Time) bool {
	c.ends = slices.DeleteFunc(c.ends, func(end time.Time) bool { return !now.Before(end) })
	if len(c.ends) >= c.most {
		return false
	}
	c.ends = append(c.ends, end)
	return true
}

// ideal is when the last job is published at best.
func (a api) ideal() time.Duration { return a.earliest(jobCount - 1) }

// latency of the API: 15 to 25 ms, different from call to call so that callers do not
// march in step.
func latency(n, _ int) time.Duration {
	return 15*time.Millisecond + time.Duration(n*7%11)*time.Millisecond
}

// meanLatency is the mean of latency.
const meanLatency = 20 * time.Millisecond

// hints are what an API that announces its limit sends: Retry-After with refusals, and
// with each answer how many calls are left.
const hints = fakeapi.RetryAfter | fakeapi.RateLimit

// cell is one line of the table: an API, with or without hints, and a contender.
type cell struct {
	api       api
	hints     bool
	contender contender
	jobs      int
	runs      []outcome
}

// cells returns a cell for each contender at each API whose name contains only, ordered by API.
func cells(only string, of []contender) []*cell {
	var all []*cell
	for _, a := range apis() {
		if !strings.Contains(a.name, only) {
			continue
		}
		for _, hints := range []bool{false, true} {
			if hints && a.limit != nil {
				continue
			}
			for _, c := range of {
				all = append(all, &cell{api: a, hints: hints, contender: c, jobs: jobCount})
			}
		}
	}
	return all
}
