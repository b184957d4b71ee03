package bench

import (
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/fakeapi"
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
	// punishes: calls while limited make it longer.
	punishes bool
	// earliest is when the n-th call, counted from 0, can be accepted at best.
	earliest func(n int) time.Duration
}

func apis() []api {
	windows := func(n int) time.Duration { return time.Duration(n/quota) * window }
	return []api{
		{name: "fixed window", limiter: fakeapi.FixedWindow{Quota: quota, Window: window}, earliest: windows},
		{name: "sliding window", limiter: fakeapi.SlidingWindow{Quota: quota, Window: window}, earliest: windows},
		{name: "token bucket", limiter: fakeapi.TokenBucket{Rate: quota / window.Seconds(), Burst: quota}, earliest: func(n int) time.Duration {
			return time.Duration(max(0, n-quota+1)) * window / quota
		}},
		{name: "penalty", limiter: fakeapi.Penalty{Quota: quota, Window: window, Extend: extend}, punishes: true, earliest: windows},
	}
}

// ideal is when the last job is published at best.
func (a api) ideal() time.Duration { return a.earliest(jobCount - 1) }

// latency of the API: 15 to 25 ms, different from call to call so that callers do not
// march in step.
func latency(n, _ int) time.Duration {
	return 15*time.Millisecond + time.Duration(n*7%11)*time.Millisecond
}

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

// cells returns all, those of one API next to each other.
func cells(only string) []*cell {
	var all []*cell
	for _, a := range apis() {
		if !strings.Contains(a.name, only) {
			continue
		}
		for _, hints := range []bool{false, true} {
			for _, c := range contenders {
				all = append(all, &cell{api: a, hints: hints, contender: c, jobs: jobCount})
			}
		}
	}
	return all
}
