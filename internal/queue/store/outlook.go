package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
)

var outlookScript = script("outlook")

// outlookSamples bounds the samples of each kind.
const outlookSamples = 100

// Outlook is what waits in a queue, for a forecast.
type Outlook struct {
	At time.Time
	// Pending and InTurns jobs wait for a call; HeldByKey ones for limits of their keys, Waiting ones for parents.
	Pending, Active, InTurns, Keys, HeldByKey, Waiting int

	Pause *PauseInfo
	// KeyLengths are how many jobs some of the Keys in turns have.
	KeyLengths []int
	// Later is how many jobs become ready by each time, since the one before; the times of held keys are not in order.
	Later []Timed
	// Entered is when the ready jobs at some places entered the queue.
	Entered  []Timed
	Expiring []ExpiringJob
	// Costs are the headers of some pending jobs.
	Headers []map[string]string
	ForecastErrors

	Wanted []Wanted
	// Completed is how many jobs completed from each of the given instants until the next, and since the last.
	Completed []int
}

// ForecastErrors are the errors of forecasts of the latest Starts jobs that started; Inside of them lay in their range.
type ForecastErrors struct {
	Errors         []float64
	Inside, Starts int
}

func forecastErrors(starts []string) (e ForecastErrors) {
	e.Starts = len(starts)
	for word := range strings.FieldsSeq(strings.Join(starts, " ")) {
		index, inside, _ := strings.Cut(word, ":")
		if i, err := strconv.Atoi(index); err == nil {
			e.Errors = append(e.Errors, forecastError(i))
		}
		if inside == "1" {
			e.Inside++
		}
	}
	return e
}

// ForecastErrorsOf reads the forecast errors of each queue of the destinations, in one round trip. Errors: Redis's.
func (n Namespace) ForecastErrorsOf(ctx context.Context, rdb redis.UniversalClient, destinations []string) ([][]ForecastErrors, error) {
	out, cmds := make([][]ForecastErrors, len(destinations)), make([][]*redis.StringSliceCmd, len(destinations))
	if _, err := redispipe.Run(ctx, rdb, func(pipe redis.Pipeliner) error {
		for i, d := range destinations {
			for _, queue := range n.Queues(d) {
				cmds[i] = append(cmds[i], pipe.LRange(ctx, ours(queue, "forecasts"), 0, -1))
			}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the errors of forecasts: %w", err)
	}
	for i, of := range cmds {
		for _, cmd := range of {
			out[i] = append(out[i], forecastErrors(cmd.Val()))
		}
	}
	return out, nil
}

// Wanted is a job that gets a forecast, to compare its start with.
type Wanted struct {
	ID string
	// Place is how many jobs are before it, or if it is InTurn of its key.
	Place        int
	InTurn       bool
	At, From, To time.Time // its forecast
}

var foretellScript = script("foretell")

// Foretell adds forecasts to the records of jobs, as of an instant. Errors: Redis's.
func Foretell(ctx context.Context, rdb redis.UniversalClient, queue string, now time.Time, jobs []Wanted) error {
	args := []any{queue}
	for _, j := range jobs {
		args = append(args, j.ID, fmt.Sprint(now.UnixMilli(), " ", j.At.UnixMilli(), " ", j.From.UnixMilli(), " ", j.To.UnixMilli()))
	}
	if err := foretellScript.Run(ctx, rdb, []string{PendingKey(queue)}, args...).Err(); err != nil {
		return fmt.Errorf("write forecasts of %s: %w", queue, err)
	}
	return nil
}

// Timed is a number that belongs to an instant.
type Timed struct {
	At time.Time
	N  int
}

// ExpiringJob stands for Weight jobs that expire. Since is when it entered the queue, or is due.
type ExpiringJob struct {
	ID        string
	At, Since time.Time
	Weight    float64
	State     string
}

// Outlooks looks at queues, in one round trip, with one command for each; since are the instants of Outlook.Completed,
// the first one first. Errors: Redis's.
func Outlooks(ctx context.Context, rdb redis.UniversalClient, queues []string, since []time.Time) ([]Outlook, error) {
	eval := func(ctx context.Context, c redis.Scripter, f evaluation, i int) *redis.Cmd {
		args := []any{queues[i], outlookSamples}
		for _, t := range since {
			args = append(args, t.Unix())
		}
		return f(outlookScript, ctx, c, []string{PendingKey(queues[i])}, args...)
	}
	cmds := evalAll(ctx, rdb, len(queues),
		func(c redis.Scripter, i int) *redis.Cmd { return eval(ctx, c, (*Script).EvalSha, i) },
		func(i int) *redis.Cmd { return eval(ctx, rdb, (*Script).Run, i) })
	out := make([]Outlook, len(queues))
	for i, cmd := range cmds {
		v, err := valuesOf(cmd)
		if err == nil {
			out[i] = outlookOf(v)
			err = v.err
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", queues[i], err)
		}
	}
	return out, nil
}

func outlookOf(v *values) Outlook {
	o := Outlook{
		At: v.instant(), Pending: v.integer(), Active: v.integer(), InTurns: v.integer(), Keys: v.integer(),
		HeldByKey: v.integer(), Waiting: v.integer(),
	}
	if text := v.text(); text != "" {
		pause := ParsePause(text)
		o.Pause = &pause
	}
	for lengths := v.list(); len(lengths.left) > 0; {
		o.KeyLengths = append(o.KeyLengths, lengths.integer())
	}
	for later := v.list(); len(later.left) > 0; {
		o.Later = append(o.Later, Timed{later.score(), later.integer()})
	}
	for entered := v.list(); len(entered.left) > 0; {
		n := entered.integer()
		o.Entered = append(o.Entered, Timed{entered.instant(), n})
	}
	for jobs := v.list(); len(jobs.left) > 0; {
		e := ExpiringJob{ID: jobs.text(), At: jobs.score()}
		e.Weight, _ = strconv.ParseFloat(jobs.text(), 64)
		e.Since, e.State = jobs.instant(), jobs.text()
		o.Expiring = append(o.Expiring, e)
	}
	for messages := v.list(); len(messages.left) > 0; {
		if m, err := DecodeMessage([]byte(messages.text())); err == nil {
			o.Headers = append(o.Headers, m.Headers)
		}
	}
	var starts []string
	for errors := v.list(); len(errors.left) > 0; {
		starts = append(starts, errors.text())
	}
	o.ForecastErrors = forecastErrors(starts)
	for wanted := v.list(); len(wanted.left) > 0; {
		o.Wanted = append(o.Wanted, Wanted{ID: wanted.text(), Place: wanted.integer(), InTurn: wanted.integer() == 1})
	}
	for counts := v.list(); len(counts.left) > 0; {
		o.Completed = append(o.Completed, counts.integer())
	}
	return o
}

// score reads unix milliseconds that Redis may have written as a float.
func (v *values) score() time.Time {
	ms, err := strconv.ParseFloat(v.text(), 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}

// MeanCost is what a job costs in a unit, "" for the declared limits, by the headers of some.
func MeanCost(headers []map[string]string, unit string) float64 {
	total := 0
	for _, h := range headers {
		cost, costs := 1, map[string]int{}
		if n, err := strconv.Atoi(h[HeaderCost]); err == nil {
			cost = n
		}
		if unit != "" && json.Unmarshal([]byte(h[HeaderCosts]), &costs) == nil && costs[unit] > 0 {
			cost = costs[unit]
		}
		total += max(1, cost)
	}
	if len(headers) == 0 {
		return 1
	}
	return float64(total) / float64(len(headers))
}

// The counts of a minute that a forecast reads; see MinutesKey.
const (
	MinuteCalls   = "calls"
	MinuteLimited = "limited"
	MinuteTook    = "took_ms"
)

// MinuteField is the field of a count of a minute, in the hash of its hour.
func MinuteField(minute int, name string) string { return strconv.Itoa(minute) + ":" + name }

// UsualWindow is the shortest usual length of a window that has so much left.
func UsualWindow(left time.Duration) time.Duration {
	for _, d := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour} {
		if left <= d+time.Second {
			return d
		}
	}
	return left
}

// Recent are the calls of a destination of late.
type Recent struct {
	Calls, Limited int
	// Took is what all calls took.
	Took time.Duration
	// Span is from the first minute with calls until now.
	Span time.Duration
}

// Recently sums the calls of the last minutes, 59 at most, in one round trip and up to two commands. Errors: Redis's.
func (n Namespace) Recently(ctx context.Context, rdb redis.UniversalClient, destination string, now time.Time, minutes int) (Recent, error) {
	names := []string{MinuteCalls, MinuteLimited, MinuteTook}
	fields, starts := map[int64][]string{}, map[int64][]time.Time{}
	now = now.UTC()
	var hours []int64
	for i := minutes; i >= 0; i-- {
		at := now.Truncate(time.Minute).Add(-time.Duration(i) * time.Minute)
		hour := at.Unix() / 3600
		if len(fields[hour]) == 0 {
			hours = append(hours, hour)
		}
		for _, name := range names {
			fields[hour] = append(fields[hour], MinuteField(at.Minute(), name))
		}
		starts[hour] = append(starts[hour], at)
	}
	var r Recent
	for _, hour := range hours {
		found, err := rdb.HMGet(ctx, n.MinutesKey(destination, hour), fields[hour]...).Result()
		if err != nil {
			return r, fmt.Errorf("read the last minutes of %s: %w", destination, err)
		}
		count := func(i int) int {
			text, _ := found[i].(string)
			n, _ := strconv.Atoi(text)
			return n
		}
		for i, at := range starts[hour] {
			calls := count(3 * i)
			r.Calls, r.Limited = r.Calls+calls, r.Limited+count(3*i+1)
			r.Took += time.Duration(count(3*i+2)) * time.Millisecond
			if calls > 0 && r.Span == 0 {
				r.Span = now.Sub(at)
			}
		}
	}
	return r, nil
}

// forecastError is the error of an index: steps of 15 %, the first one of 0.3 % of the wait.
func forecastError(index int) float64 {
	size := 0.02 * (math.Pow(1.15, math.Abs(float64(index))) - 1)
	return math.Copysign(size, float64(index))
}
