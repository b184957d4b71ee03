package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/dashboard/chart"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/simulate"
	"github.com/tidegate/tidegate/internal/store"
	"github.com/tidegate/tidegate/internal/text"
	"github.com/tidegate/tidegate/internal/whatif"
)

const (
	mostSimulated  = 20_000 // jobs of a simulation
	simulatedTime  = 24 * time.Hour
	simulateWithin = 10 * time.Second
	mostField      = 8192 // bytes of a field: each outage of a day is one of the API's limits
	simulatedSteps = 8640 // each of 10 s
	mostDrawn      = 60   // steps of a chart
	recorded       = "recorded"
)

// whatIfPage is the data of the page that simulates a destination with other settings.
type whatIfPage struct {
	Name, Problem string
	Fields        []whatIfField
	// Rows compare the settings of today with the changed ones, as Runs draw them; none before.
	Rows [][]string
	Runs []whatIfRun

	now    simulate.Options // with the settings of today
	counts []time.Duration  // arrivals that were counted
}

type whatIfField struct{ Name, Label, Hint, Value string }

type whatIfRun struct {
	Title  string
	Charts [2]template.HTML // calls, backlog
}

// whatIf shows the settings of a destination, and simulates others.
func (d *Dashboard) whatIf(w http.ResponseWriter, r *http.Request) error {
	if !d.viewerOf(r.Context()).Operate {
		return refused("operate")
	}
	p, err := d.readWhatIf(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	s := show{title: "What if: " + p.Name, data: p}
	if r.Method == http.MethodPost {
		r.Body = http.MaxBytesReader(w, r.Body, mostForm)
		if err := d.simulate(r, p); err != nil {
			known, ok := errors.AsType[*problem](err)
			if !ok {
				return err
			}
			p.Problem, s.status = known.text, known.status
		}
	}
	d.render(w, r, "whatif", s)
	return nil
}

func (d *Dashboard) readWhatIf(ctx context.Context, name string) (*whatIfPage, error) {
	if _, err := d.find(ctx, name); err != nil {
		return nil, err
	}
	settings, known := d.settings(name)
	if !known {
		p := absent("The settings are not known", "This process has no configuration of "+name+": start tidegate api with that of the workers, or compare files in a terminal.")
		p.hint = "tidegate simulate --help"
		return nil, p
	}
	found, err := whatif.Source{Redis: d.rdb, Namespace: store.Namespace(d.ns)}.Read(ctx, name)
	if err != nil && !errors.Is(err, whatif.ErrNoJobs) && !errors.Is(err, whatif.ErrManyJobs) && !errors.Is(err, whatif.ErrNoLimit) {
		return nil, err //nolint:wrapcheck // it names the package
	}
	waiting, err := d.client.Backlog(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the backlog: %w", err)
	}
	workers := max(1, found.Slots/max(1, settings.Slots))
	each := cmp.Or(found.Slots/workers, settings.Slots)
	settings.Slots, settings.For, settings.Steps = workers*each, found.Span()+simulatedTime, simulatedSteps
	p := &whatIfPage{Name: name, now: found.Options(settings, each), counts: found.Arrivals}
	from, of := "such as window:60/1h, bucket:60/1h:10 or concurrency:5", "how many wait at the start"
	if found.API != "" {
		from = "as " + found.From + "; " + from
	}
	come := strconv.Itoa(waiting)
	if n := len(found.Arrivals); n > 0 {
		of = recorded + ": " + plural(n, "job", "jobs") + " of the last 24 hours; or " + of
		if n <= mostSimulated {
			come = recorded
		}
	}
	p.Fields = []whatIfField{
		{"cooldown", "Cooldown", "", p.now.Breaker.Cooldown.String()},
		{"threshold", "Refused calls in a row that open the breaker", "", strconv.Itoa(p.now.Breaker.FailureThreshold)},
		{"rate", "Rate", "such as 60/1h, or off", cmp.Or(p.now.Breaker.Rate.String(), store.NoRate)},
		{"workers", "Workers", "", strconv.Itoa(workers)},
		{"concurrency", "Calls at a time of a worker", "", strconv.Itoa(each)},
		{"api", "Limits of the API, in both", from, found.API},
		{"jobs", "Jobs, in both", of, come},
		{"expire", "Time after which they expire, in both", "such as 6h, or never", "never"},
	}
	return p, nil
}

// take reads a form, and returns what it asks for: the settings of today, and the changed ones.
func (p *whatIfPage) take(form func(string) string) (now, then simulate.Options, err error) {
	values := map[string]string{}
	for i := range p.Fields {
		f := &p.Fields[i]
		if f.Value = strings.TrimSpace(form(f.Name)); len(f.Value) > mostField {
			return now, then, wrong("%s: it has more than %d bytes.", f.Label, mostField)
		}
		values[f.Name] = f.Value
	}
	refuse := func(format string, args ...any) { err = cmp.Or[error](err, wrong(format, args...)) }
	number := func(name, what string, most int) int {
		n, bad := strconv.Atoi(values[name])
		if bad != nil || n < 1 || n > most {
			refuse("%s: give a number from 1 to %s.", what, chart.Count(most))
		}
		return n
	}
	length := func(name, what string) time.Duration {
		t, bad := time.ParseDuration(values[name])
		if bad != nil || t < time.Millisecond || t > simulatedTime {
			refuse("%s: give a time such as 90s or 1h, up to 24h.", what)
		}
		return t
	}
	now = p.now
	if now.API = values["api"]; now.API == "" {
		refuse("Give the limits of the API, such as window:60/1h.")
	} else if _, bad := simulate.ParseAPI(now.API); bad != nil {
		refuse("Limits of the API: %s.", text.Cut(bad.Error(), 400))
	}
	if now.Arrivals = p.counts; values["jobs"] != recorded {
		n := number("jobs", "Jobs", mostSimulated)
		if err == nil {
			now.Arrivals = make([]time.Duration, n)
		}
		now.For = simulatedTime
	} else if len(p.counts) == 0 || len(p.counts) > mostSimulated {
		refuse("Jobs: %d were counted; a simulation takes from 1 to %s. Give a number.", len(p.counts), chart.Count(mostSimulated))
	}
	if values["expire"] != "never" {
		now.ExpireIn = length("expire", "Time after which jobs expire")
	}
	then = now
	then.Breaker.Cooldown = length("cooldown", "Cooldown")
	then.Breaker.MaxCooldown = max(cmp.Or(now.Breaker.MaxCooldown, breaker.DefaultMaxCooldown), then.Breaker.Cooldown)
	then.Breaker.FailureThreshold = number("threshold", "Refused calls", 1000)
	then.Slots = number("workers", "Workers", 1000) * number("concurrency", "Calls at a time", 10_000)
	if rate := values["rate"]; rate != now.Breaker.Rate.String() {
		var bad error
		then.Breaker.OperatorRate = false
		if then.Breaker.Rate = nil; rate != store.NoRate {
			then.Breaker.Rate, bad = breaker.ParseRates(rate)
		}
		if bad != nil {
			refuse("Rate: %s.", text.Cut(strings.TrimPrefix(bad.Error(), "breaker: "), 300))
		}
	}
	return now, then, err
}

// simulate plays both, while no other simulation of this process runs.
func (d *Dashboard) simulate(r *http.Request, p *whatIfPage) error {
	now, then, err := p.take(r.PostFormValue)
	if err != nil {
		return err
	}
	if !d.simulating.TryLock() {
		return &problem{status: http.StatusTooManyRequests, text: "A simulation runs in this process. Try again in some seconds."}
	}
	defer d.simulating.Unlock()
	ctx, cancel := context.WithTimeout(r.Context(), simulateWithin)
	defer cancel()
	results := make([]simulate.Result, 2)
	group, inGroup := errgroup.WithContext(ctx)
	for i, o := range []simulate.Options{now, then} {
		group.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil { // the process serves others, too
					err = fmt.Errorf("panic: %v", v)
				}
			}()
			results[i], err = simulate.Run(inGroup, o)
			return err //nolint:wrapcheck // it is shown
		})
	}
	switch err := group.Wait(); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return wrong("It did not end within %s: give fewer jobs, or use tidegate simulate.", explain.Duration(simulateWithin))
	case err != nil:
		return wrong("It cannot be simulated: %s.", text.Cut(err.Error(), 300))
	}
	p.Rows = whatif.Rows(now.For, explain.Duration, results...)
	titles := []string{"Today", "Changed"}
	for i, pair := range chart.Simulated(mostDrawn, titles, results) {
		run := whatIfRun{Title: titles[i]}
		for k := range pair {
			if run.Charts[k], err = pair[k].SVG(); err != nil {
				return &broken{err}
			}
		}
		p.Runs = append(p.Runs, run)
	}
	return nil
}
