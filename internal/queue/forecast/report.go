package forecast

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// ETA is when a job starts: From–To holds it for 90 % of jobs. Without At, Because says why there is none.
type ETA struct {
	At      *time.Time `json:"at" doc:"When it starts; null: that cannot be said, see because." example:"2030-01-31T16:40:00Z"`
	From    *time.Time `json:"from" doc:"It starts between from and to, for 90 % of jobs." example:"2030-01-31T16:31:00Z"`
	To      *time.Time `json:"to" doc:"See from." example:"2030-01-31T17:10:00Z"`
	Because string     `json:"because" doc:"What it waits for most, or why there is no time." example:"60 calls an hour"`
}

// None is the ETA of a job for which there is none.
func None(because string) ETA { return ETA{Because: because} }

// Accuracy is how good earlier forecasts of a destination were.
type Accuracy struct {
	// Errors of the forecasts for Starts jobs, as (real − forecast) / (forecast wait + 1 s), sorted. Inside counts
	// the forecasts whose range held the real start.
	Errors         []float64
	Inside, Starts int
}

const (
	fewStarts = 19 // of fewer none shows what 5 % of jobs exceed
	slack     = time.Second
	wanted    = 0.9 // part of the starts that ranges are to hold
	gain      = 4.5 // of the correction
)

// bounds returns the errors between which 90 % lie. With few jobs it returns a wide range.
func (a *Accuracy) bounds() (low, high float64) {
	e := a.Errors
	if !a.Known() {
		low, high = -0.5, 1
		if len(e) > 0 {
			low, high = min(low, e[0]), max(high, e[len(e)-1])
		}
		return max(low, -1), high
	}
	// As in split conformal prediction, the quantile is of one error more than there are; it is lower if the ranges
	// held too many starts, as errors were larger before (Gibbs and Candès, Adaptive Conformal Inference, 2021).
	part := min(0.98, max(0.35, wanted+gain*(wanted-a.Share())))
	k := int(math.Ceil((1 + part) / 2 * float64(len(e)+1)))
	return max(e[len(e)-min(k, len(e))], -1), e[min(k, len(e))-1]
}

// Known reports whether enough jobs have shown how good forecasts are.
func (a *Accuracy) Known() bool { return a.Starts >= fewStarts && len(a.Errors) > 0 }

// Share is the part of the starts that lay in their range, 0 to 1.
func (a *Accuracy) Share() float64 { return float64(a.Inside) / float64(len(a.Errors)) }

// Median is the median of the sizes of errors, as a part of the wait.
func (a *Accuracy) Median() float64 {
	off := make([]float64, len(a.Errors))
	for i, e := range a.Errors {
		off[i] = math.Abs(e)
	}
	slices.Sort(off)
	return off[len(off)/2]
}

// Width is the width of a range, as a part of the wait.
func (a *Accuracy) Width() float64 {
	low, high := a.bounds()
	return high - low
}

// ETA returns the ETA of a job with this forecast start that cannot start before notBefore.
func (f *Forecast) ETA(start, notBefore time.Time) ETA {
	if f.Stopped != "" {
		return None(f.Stopped)
	}
	if start.IsZero() {
		return None(fmt.Sprintf("it is beyond what is forecast: %d jobs wait", f.Jobs))
	}
	if start.Before(notBefore) {
		start = notBefore
	}
	if start.Before(f.At) {
		start = f.At
	}
	// What a job waits by its own time is sure.
	sure := f.At
	if notBefore.After(sure) {
		sure = notBefore
	}
	wait := start.Sub(sure) + slack
	low, high := f.bounds()
	from, to := start.Add(time.Duration(low*float64(wait))), start.Add(time.Duration(high*float64(wait)))
	if from.Before(sure) {
		from = sure
	}
	e := ETA{At: instant(start), From: instant(from), To: instant(to), Because: f.Binding}
	if start.Sub(notBefore) < slack && notBefore.After(f.At) {
		e.Because = "its own time"
	}
	if e.Because == "" {
		e.Because = "a free worker"
	}
	return e
}

// Since is the ETA of the ready job that entered its queue at an instant. If many did at once, the range holds all.
func (f *Forecast) Since(class int, entered time.Time) ETA {
	low, high := f.Queues[class].placesSince(entered)
	e := f.ETA(f.Start(class, (low+high)/2), entered)
	if first, last := f.ETA(f.Start(class, low), entered), f.ETA(f.Start(class, high), entered); e.At != nil && first.From != nil && last.To != nil {
		e.From, e.To = first.From, last.To
	}
	return e
}

func instant(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	return &t
}

// Point is the backlog at an instant.
type Point struct {
	At      time.Time `json:"at" doc:"When." example:"2030-01-31T15:00:00Z"`
	Backlog int       `json:"backlog" doc:"How many jobs have not started by then." example:"420"`
}

// Late is a job that expires before it can start.
type Late struct {
	ID        string     `json:"id" doc:"Its id." example:"post-7"`
	ExpiresAt time.Time  `json:"expires_at" doc:"When it expires." example:"2030-01-31T16:00:00Z"`
	StartsAt  *time.Time `json:"starts_at" doc:"When it would start; null: that cannot be said." example:"2030-01-31T16:40:00Z"`
}

// Report is the forecast of a destination.
type Report struct {
	Destination string    `json:"destination" doc:"Its name." example:"deviantart"`
	At          time.Time `json:"at" doc:"Of when it is." example:"2030-01-31T14:35:00Z"`
	Backlog     int       `json:"backlog" doc:"How many jobs are to start, without jobs that wait for other jobs or are paused." example:"120"`
	Waiting     int       `json:"waiting_for_parents" doc:"How many wait for parents, or behind another job of their key; they are not part of the forecast." example:"0"`
	EmptyAt     ETA       `json:"empty_at" doc:"When the last job starts, if none is enqueued."`
	Binding     string    `json:"binding" doc:"What holds the jobs now, and longest; empty: nothing does." example:"60 calls an hour"`
	OneMore     string    `json:"one_more_worker" doc:"What one more worker would change." example:"nothing: 60 calls an hour hold the jobs"`
	Expire      int       `json:"expire" doc:"About how many jobs expire before they can start." example:"17"`
	ExpireSoon  int       `json:"expire_within_hour" doc:"About how many of them expire within an hour." example:"9"`
	First       []Late    `json:"expire_first" doc:"The jobs that expire first, up to 10 of the jobs that were looked at."`
	Points      []Point   `json:"points" doc:"The backlog from now until it is empty."`
	Accuracy    string    `json:"accuracy" doc:"How wide the ranges are, and why." example:"by 214 starts: from 12 % of the wait early to 9 % late; median error 4 %, 91 % in their range"`
}

const (
	mostPoints, mostLate = 60, 10
	soon                 = time.Hour
)

// Report words a forecast.
func (f *Forecast) Report(destination string) Report {
	r := Report{Destination: destination, At: f.At.UTC(), Backlog: f.Jobs, Binding: f.Binding, First: []Late{}, Points: []Point{}, Accuracy: f.accuracy()}
	for _, q := range f.Queues {
		r.Waiting += q.Waiting
	}
	switch {
	case f.Jobs == 0:
		r.EmptyAt = ETA{At: instant(f.At), From: instant(f.At), To: instant(f.At), Because: "no job waits"}
	case f.Stopped == "" && (len(f.all) == 0 || f.all[len(f.all)-1].Place < float64(f.Jobs)-0.5):
		r.EmptyAt = None("it takes more than two years")
	default:
		r.EmptyAt = f.ETA(f.Done, time.Time{})
	}
	f.late(&r)
	r.OneMore = f.oneMore()
	f.points(&r)
	return r
}

// late counts the jobs that expire before they start, and lists the first ones.
func (f *Forecast) late(r *Report) {
	all, within := 0.0, 0.0
	f.eachLate(func(_ int, e Expiring, start time.Time) {
		all += e.Weight
		if !e.At.After(f.At.Add(soon)) {
			within += e.Weight
		}
		l := Late{ID: e.ID, ExpiresAt: e.At.UTC()}
		if !start.IsZero() {
			l.StartsAt = instant(start)
		}
		r.First = append(r.First, l)
	})
	r.Expire, r.ExpireSoon = int(math.Round(all)), int(math.Round(within))
	slices.SortFunc(r.First, func(a, b Late) int { return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID)) })
	r.First = r.First[:min(len(r.First), mostLate)]
}

// expiries are the jobs of each queue that expire before they start.
func (f *Forecast) expiries() (late [Classes]expiry) {
	if f.Stopped != "" {
		return late
	}
	f.eachLate(func(class int, e Expiring, _ time.Time) {
		l := &late[class]
		if l.jobs += e.Weight; l.from.IsZero() || e.At.Before(l.from) {
			l.from = e.At
		}
	})
	return late
}

// eachLate yields the jobs that expire before they start.
func (f *Forecast) eachLate(yield func(class int, e Expiring, start time.Time)) {
	for c := range f.Queues {
		q := &f.Queues[c]
		at, seen := map[time.Time]float64{}, map[time.Time]float64{} // how many entered the queue at once
		for _, e := range q.Expiring {
			at[e.Since]++
		}
		for _, e := range q.Expiring {
			start := time.Time{}
			switch {
			case f.Stopped != "":
			case e.Later:
				start = f.Start(c, q.PlaceAt(e.Since)-1)
			default:
				low, high := q.placesSince(e.Since)
				start = f.Start(c, low+(high-low)*(seen[e.Since]+0.5)/at[e.Since])
				seen[e.Since]++
			}
			if start.IsZero() || !start.Before(e.At) {
				yield(c, e, start)
			}
		}
	}
}

// oneMore says what one more worker changes.
func (f *Forecast) oneMore() string {
	switch {
	case f.Stopped != "" && f.Jobs > 0:
		return "nothing: " + f.Stopped
	case f.Jobs == 0 || f.Binding == "":
		return "nothing: no job waits for one"
	case f.PerWorker == 0:
		return "not known: no worker makes calls yet"
	case f.Binding == f.Because:
		return "nothing: " + f.Because
	}
	more := f.Snapshot
	more.Slots += more.PerWorker
	with := Run(more)
	before, saved := f.Done.Sub(f.At), f.Done.Sub(with.Done)
	if saved < before/50 || saved < time.Second {
		return "nothing: " + f.Binding + " would still hold the jobs"
	}
	return fmt.Sprintf("the backlog would be empty %s earlier, at %s", saved.Round(time.Second), with.Done.UTC().Format(time.RFC3339))
}

func (f *Forecast) accuracy() string {
	if !f.Known() {
		return "few jobs have shown how good forecasts are here, so ranges are wide"
	}
	low, high := f.bounds()
	percent := func(part float64) string { return strconv.Itoa(int(math.Round(100*math.Abs(part)))) + " %" }
	return fmt.Sprintf("by %d starts: from %s of the wait early to %s late; median error %s, %s in their range",
		f.Starts, percent(low), percent(high), percent(f.Median()), percent(f.Share()))
}

// points adds the backlog over time.
func (f *Forecast) points(r *Report) {
	if f.Stopped != "" || f.Jobs == 0 {
		r.Points = append(r.Points, Point{f.At.UTC(), f.Jobs})
		return
	}
	length := f.Done.Sub(f.At)
	for i := range mostPoints {
		t := f.At.Add(length * time.Duration(i) / (mostPoints - 1))
		k, _ := slices.BinarySearchFunc(f.all, t, func(m Mark, t time.Time) int { return cmp.Or(m.At.Compare(t), -1) })
		done := 0.0
		if k > 0 {
			done = f.all[k-1].Place
		}
		r.Points = append(r.Points, Point{t.UTC().Truncate(time.Millisecond), f.Jobs - int(math.Round(done))})
		if length == 0 {
			break
		}
	}
}

// inFlight words the limit of calls in flight.
func inFlight(s *Snapshot) string {
	took := s.Took.Round(time.Millisecond)
	if took > 10*time.Second {
		took = took.Round(time.Second)
	}
	return fmt.Sprintf("%.0f calls in flight of %s each", s.Slots, took)
}
