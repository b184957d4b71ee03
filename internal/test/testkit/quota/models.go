package quota

import (
	"math/rand/v2"
	"time"
)

// Model is an API: its limit, what calls to it take, and who calls.
type Model struct {
	Name string
	// New returns an unused limit.
	New func(Run) Limiter
	// Window is the span by which accepted and refused calls are counted, Windows how many
	// of them are simulated.
	Window  time.Duration
	Windows int
	// Changes says that the limit changes within the run.
	Changes bool
	// Callers is how many calls are made at once at most, by all instances together.
	Callers int
	// Fastest and Slowest bound how long a call takes.
	Fastest, Slowest time.Duration
	// Decides is the part of that after which the API decides; a refusal comes back at once
	// if it is below a half.
	Decides float64
	// Failing is the part of the calls that are answered 503 and count for nothing.
	Failing float64
	// Demand returns when the next jobs arrive after now, and how many. nil: there are always jobs.
	Demand func(now time.Duration, rng *rand.Rand) (at time.Duration, jobs int)
}

// Run is one simulation.
type Run struct {
	Start, End time.Duration // since the Unix epoch
	Rand       *rand.Rand
}

// limit is a model with what most of them have in common.
func limit(name string, window time.Duration, create func(r Run) Limiter, changes ...func(*Model)) Model {
	m := Model{
		Name: name, New: create, Window: window, Windows: 24, Callers: 50,
		Fastest: 50 * time.Millisecond, Slowest: 500 * time.Millisecond, Decides: .5,
	}
	for _, change := range changes {
		change(&m)
	}
	return m
}

func callers(n int) func(*Model)        { return func(m *Model) { m.Callers = n } }
func windows(n int) func(*Model)        { return func(m *Model) { m.Windows = n } }
func failing(part float64) func(*Model) { return func(m *Model) { m.Failing = part } }

func taking(fastest, slowest time.Duration) func(*Model) {
	return func(m *Model) { m.Fastest, m.Slowest = fastest, slowest }
}

// changing is a limit that changes within the run.
func changing(m *Model) { m.Changes = true }

// refusing decides calls when they come in.
func refusing(m *Model) { m.Decides = .05 }

// slow is the latency of an API that does real work.
var slow = taking(200*time.Millisecond, 2*time.Second)

// bursts is a demand of batches: fewest to fewest+spreadJobs jobs, some time after the last batch.
func bursts(after, spread time.Duration, fewest, spreadJobs int) func(*Model) {
	return func(m *Model) {
		m.Windows = 40
		m.Demand = func(now time.Duration, rng *rand.Rand) (time.Duration, int) {
			return now + after + seconds(rng.Float64()*spread.Seconds()), fewest + rng.IntN(spreadJobs)
		}
	}
}

func light(perSecond float64) func(*Model) {
	return func(m *Model) {
		m.Demand = func(now time.Duration, rng *rand.Rand) (time.Duration, int) {
			return now + seconds(rng.ExpFloat64()/perSecond), 1
		}
	}
}

type creator = func(r Run) Limiter

func aligned(quota int, length time.Duration) creator {
	return func(Run) Limiter {
		return &fixedWindow{quota: constant(quota), length: length, aligned: true}
	}
}

func firstCall(quota int, length time.Duration) creator {
	return func(Run) Limiter { return &fixedWindow{quota: constant(quota), length: length} }
}

func sliding(quota int, length time.Duration) creator {
	return func(Run) Limiter { return &slidingWindow{quota: constant(quota), length: length} }
}

func bucket(burst, rate float64) creator {
	return func(Run) Limiter {
		return &tokenBucket{burst: burst, rate: func(time.Duration) float64 { return rate }}
	}
}

func penalised(quota int, length, extend time.Duration) creator {
	return func(Run) Limiter { return &penalty{quota: quota, length: length, extend: extend} }
}

func atOnce(calls int) creator {
	return func(Run) Limiter { return &concurrency{calls: calls} }
}

func together(limits ...creator) creator {
	return func(r Run) Limiter {
		var all both
		for _, create := range limits {
			all = append(all, create(r))
		}
		return all
	}
}

func stray(part float64, of creator) creator {
	return func(r Run) Limiter {
		return spurious{Limiter: of(r), part: part, rng: r.Rand}
	}
}

func banning(after int, d time.Duration, of creator) creator {
	return func(r Run) Limiter {
		return &ban{Limiter: of(r), after: after, time: d}
	}
}

// step returns 1 in the first third of the run, then one factor, and in the last third another.
func (r Run) step(second, third float64) func(now time.Duration) float64 {
	return func(now time.Duration) float64 {
		switch part := (now - r.Start) * 3 / (r.End - r.Start); part {
		case 0:
			return 1
		case 1:
			return second
		}
		return third
	}
}

// scaled is a quota that a function of time changes.
func scaled(quota int, factor func(time.Duration) float64) Quota {
	return func(now time.Duration) int { return int(float64(quota) * factor(now)) }
}

const day = 24 * time.Hour

// Models returns the models, in the order of the table. The first 52 are those on which the
// rules were chosen, the others were written after.
func Models() []Model {
	const s, m, h = time.Second, time.Minute, time.Hour
	fast := taking(20*time.Millisecond, 100*time.Millisecond)
	return []Model{
		limit("fixed 100/1m", m, aligned(100, m)),
		limit("from call 100/1m", m, firstCall(100, m)),
		limit("fixed 5000/10s", 10*s, aligned(5000, 10*s), callers(200), fast, windows(8)),
		limit("fixed 10/10s, calls 2s", 10*s, aligned(10, 10*s), callers(30), slow),
		limit("from call 137/437s", 437*s, firstCall(137, 437*s)),
		limit("fixed 137/437s", 437*s, aligned(137, 437*s)),
		limit("fixed 60/1h", h, aligned(60, h), slow),
		limit("from call 1000/1d", day, firstCall(1000, day), slow),
		limit("fixed 5000/1d", day, aligned(5000, day), callers(200), slow, windows(10)),
		limit("sliding 100/1m", m, sliding(100, m)),
		limit("sliding 1000/1h", h, sliding(1000, h), slow),
		limit("sliding 30/7m", 7*m, sliding(30, 7*m)),
		limit("bucket 50, 1/s", 50*s, bucket(50, 1)),
		limit("bucket 5, 2/s", 10*s, bucket(5, 2)),
		limit("bucket 1, 0.5/s", 20*s, bucket(1, .5)),
		limit("bucket 2000, 200/s", 10*s, bucket(2000, 200), callers(200), fast, windows(8)),
		limit("bucket 100, 5/h", 4*h, bucket(100, 5./3600)),
		limit("penalty 100/1m +10s", m, penalised(100, m, 10*s)),
		limit("penalty 500/1h +1m", h, penalised(500, h, m)),
		limit("velocity 100, 1m", m, func(Run) Limiter { return &velocity{threshold: 100, half: m, refused: 1} }),
		limit("velocity 20, 1h, x5", h, func(Run) Limiter { return &velocity{threshold: 20, half: h, refused: 5} }),
		limit("fixed 10/1m + 60/1h", h, together(aligned(10, m), aligned(60, h))),
		limit("sliding 10/1m + 60/1h", h, together(sliding(10, m), sliding(60, h))),
		limit("fixed 100/1m, ½, 2x", m, func(r Run) Limiter {
			return &fixedWindow{quota: scaled(100, r.step(.5, 2)), length: m, aligned: true}
		}, changing),
		limit("sliding 100/1h, 2x, ½", h, func(r Run) Limiter {
			return &slidingWindow{quota: scaled(100, r.step(2, .5)), length: h}
		}, changing),
		limit("bucket 50, 1/s, ½, 2x", 50*s, func(r Run) Limiter {
			return &tokenBucket{burst: 50, rate: r.step(.5, 2)}
		}, changing),
		limit("fixed 100/1m, others", m, func(r Run) Limiter {
			return &fixedWindow{quota: constant(100), length: m, aligned: true, others: .3, rng: r.Rand}
		}),
		limit("bucket 50, 1/s, others", 50*s, func(r Run) Limiter {
			return &tokenBucket{burst: 50, rate: func(time.Duration) float64 { return 1 }, others: .3, rng: r.Rand}
		}),
		limit("fixed 100/1m, 1% stray", m, stray(.01, aligned(100, m))),
		limit("bucket 50, 1/s, 1% stray", 50*s, stray(.01, bucket(50, 1))),
		limit("no limit, 1% stray", m, stray(.01, func(Run) Limiter { return unlimited{} }), windows(6), callers(30)),
		limit("fixed 100/1m, light", m, aligned(100, m), light(.8)),
		limit("fixed 100/1m, bursts", m, aligned(100, m), bursts(m, 3*m, 20, 160)),
		limit("sliding 100/1m, bursts", m, sliding(100, m), bursts(m, 3*m, 20, 160)),
		limit("bucket 50, 1/s, bursts", 50*s, bucket(50, 1), bursts(30*s, 2*m, 10, 80)),
		limit("5 at once", m, atOnce(5), windows(20), callers(30), slow, refusing),
		limit("20 at once", m, atOnce(20), windows(20), callers(30), slow, refusing),
		limit("8 at once, calls 1s", m, atOnce(8), windows(20), callers(60), taking(500*time.Millisecond, s), refusing),
		limit("fixed 100/1m, 8 callers", m, aligned(100, m), callers(8)),
		limit("fixed 30/1m + 1000/1d", day, together(aligned(30, m), aligned(1000, day)), windows(20)),
		limit("fixed 60/1m, fast", m, aligned(60, m), callers(30), taking(40*time.Millisecond, 60*time.Millisecond)),
		limit("fixed 100/1m, 2% 503", m, aligned(100, m), failing(.02)),
		limit("bucket 20, 0.2/s", 100*s, bucket(20, .2)),
		limit("penalty 50/5m +30s", 5*m, penalised(50, 5*m, 30*s), callers(20)),
		limit("sliding 6/30s + 50/30m", 30*m, together(sliding(6, 30*s), sliding(50, 30*m))),
		limit("sl. 20/1m + fixed 300/2h", 2*h, together(sliding(20, m), aligned(300, 2*h))),
		limit("bucket 20, 1/s, 2% stray", 50*s, stray(.02, bucket(20, 1))),
		limit("sliding 40/3m, 12 callers", 3*m, sliding(40, 3*m), callers(12)),
		limit("from call 250/15m", 15*m, firstCall(250, 15*m)),
		limit("12 at once, fast", m, atOnce(12), windows(10), callers(40), taking(100*time.Millisecond, 400*time.Millisecond), refusing),
		limit("penalty 200/10m +20s", 10*m, penalised(200, 10*m, 20*s)),
		limit("bucket 40, 0.5/s, 2x, 1x", 80*s, func(r Run) Limiter {
			f := r.step(2, 1)
			return &tokenBucket{burst: 40, rate: func(now time.Duration) float64 { return .5 * f(now) }}
		}, changing),

		limit("counter 100/1m", m, func(Run) Limiter { return &slidingCounter{quota: 100, length: m} }),
		limit("counter 600/1h", h, func(Run) Limiter { return &slidingCounter{quota: 600, length: h} }, slow),
		limit("spaced 2/s, queue 20", 20*s, func(Run) Limiter { return &spacing{interval: s / 2, burst: 20} }, callers(30)),
		limit("spaced 2/s", 20*s, func(Run) Limiter { return &spacing{interval: s / 2} }, callers(30)),
		limit("GCRA 30/1m, burst 10", m, func(Run) Limiter {
			return &spacing{interval: 2 * s, burst: 9, noDelay: true}
		}, callers(30)),
		limit("refill 25/10s to 50", 50*s, func(Run) Limiter { return &refill{burst: 50, tokens: 25, interval: 10 * s} }),
		limit("60/1m, ban 10m after 20", 10*m, banning(20, 10*m, firstCall(60, m)), callers(30)),
		limit("300/1h, ban 2h after 10", 2*h, banning(10, 2*h, aligned(300, h)), callers(30)),
		limit("bucket 10, 1/s + 40, 0.2/s", 200*s, together(bucket(10, 1), bucket(40, .2)), callers(30)),
		limit("500/1d, local midnight", day, func(Run) Limiter {
			return &fixedWindow{quota: constant(500), length: day, aligned: true, offset: -8 * h}
		}, windows(20), callers(30), slow),
		limit("fixed 100/5m, ½ in turns", 5*m, func(Run) Limiter {
			return &fixedWindow{quota: func(now time.Duration) int {
				return 100 - 50*int(now/(2*h)%2)
			}, length: 5 * m, aligned: true}
		}, windows(96), callers(30)),
		limit("6 at once + fixed 120/1m", m, together(atOnce(6), aligned(120, m)), callers(30), refusing),
		limit("fixed 20/1m, +5 each", m, func(r Run) Limiter {
			return &fixedWindow{quota: func(now time.Duration) int { return min(20+5*int((now-r.Start)/m), 200) }, length: m, aligned: true}
		}, callers(30), changing),
		limit("fixed 200 points/1m", m, func(r Run) Limiter {
			return &costly{fixedWindow: fixedWindow{quota: constant(200), length: m, aligned: true, rng: r.Rand}, costs: []int{1, 1, 1, 2, 5}}
		}, callers(30)),
		limit("sliding 60/5m, then 30", 5*m, func(r Run) Limiter {
			return &slidingWindow{quota: scaled(60, r.step(.5, .5)), length: 5 * m}
		}, callers(30), changing),
		limit("from call 60/5m, others", 5*m, func(r Run) Limiter {
			return &fixedWindow{quota: constant(60), length: 5 * m, others: .3, rng: r.Rand}
		}, callers(30)),
		limit("sliding 60/5m, counts 429", 5*m, func(Run) Limiter {
			return &slidingWindow{quota: constant(60), length: 5 * m, countsRefused: true}
		}, callers(30)),
		limit("fixed 10/10s + 60/2m", 2*m, together(aligned(10, 10*s), aligned(60, 2*m)), callers(30)),
		limit("fixed 100/1m, 1 caller", m, aligned(100, m), callers(1)),
		limit("no limit", m, func(Run) Limiter { return unlimited{} }, windows(4), callers(30)),
		limit("no limit, 10% 503", m, func(Run) Limiter { return unlimited{} }, windows(4), callers(30), failing(.1)),
	}
}
