package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/explain"
	"github.com/tidegate/tidegate/internal/presets"
	"github.com/tidegate/tidegate/internal/simulate"
	"github.com/tidegate/tidegate/internal/whatif"
)

const (
	// adviseWithin bounds all simulations, adviseOne that of today, which is made of fewer jobs if it takes longer.
	adviseWithin, adviseOne = 25 * time.Second, 3 * time.Second
	// adviseJobs is how many recorded jobs are simulated at most, adviseLeast at least.
	adviseJobs, adviseLeast = 1500, 100
)

type adviseCmd struct{ oneDestination }

// tried is a setting and what came of it. Times are in seconds.
type tried struct {
	// Setting is as it is written down; "" is today's.
	Setting string `json:"setting"`
	// Wasted are the calls a day that the API refused, or that failed in an outage.
	Wasted  float64  `json:"wasted_a_day"`
	Drained *float64 `json:"drained_secs"`
	P90     float64  `json:"wait_p90_secs"`
	Failed  int      `json:"failed"`
	Left    int      `json:"left"`
}

// advice is the document.
type advice struct {
	Destination string `json:"destination"`
	// Missing says what is not known that advice needs; "" if all is.
	Missing string `json:"missing"`
	API     string `json:"api"`
	From    string `json:"api_from"`
	// Recorded is the time whose jobs were simulated; Refused are the calls that the API really refused in it.
	Recorded float64 `json:"recorded_secs"`
	Jobs     int     `json:"jobs"`
	Refused  int     `json:"refused"`
	Today    *tried  `json:"today"`
	// Better are settings that waste less, the best first.
	Better []tried `json:"better"`
	// Slower are settings that waste less, too, but drain later.
	Slower []tried `json:"slower"`
	// Tried are all that were simulated, Late those for which there was no time.
	Tried []string `json:"tried"`
	Late  []string `json:"not_tried"`
}

// Run simulates today's settings of a destination and others with the jobs that were recorded, and shows which of them
// would have wasted less. It changes nothing.
func (c *adviseCmd) Run(ctx context.Context, p *Process, s *session) error {
	debug.SetGCPercent(400) // the scripts' garbage
	i := slices.IndexFunc(s.cfg.Destinations, func(d config.Destination) bool { return d.Name == c.Destination })
	if i < 0 {
		return inputErrorf("%s is not configured here: give this command the variables and files of its workers", clip(c.Destination, 60))
	}
	doc := advice{Destination: c.Destination, Better: []tried{}, Slower: []tried{}, Tried: []string{}, Late: []string{}}
	record, err := s.whatIf().Read(ctx, c.Destination)
	switch {
	case errors.Is(err, whatif.ErrNoJobs):
		doc.Missing = "no jobs were counted in the last 24 hours: advice needs a worker that publishes some"
	case errors.Is(err, whatif.ErrNoLimit):
		doc.Missing = "no limit of its API is known: none is declared or announced, and there were not three incidents in the last 24 hours"
	case err != nil:
		return err //nolint:wrapcheck // it says what it is
	}
	if doc.Missing == "" {
		within, cancel := context.WithTimeout(ctx, adviseWithin)
		defer cancel()
		above := app.AboveConfig(within, s.rdb, s.cfg.RedisNamespace)
		if err := cmp.Or(doc.simulate(within, p, s.cfg, above, i, record), ctx.Err()); err != nil {
			return err
		}
	}
	return c.show(p, doc, func(r *rows) { r.addAdvice(&doc) })
}

// simulate plays the record with today's settings, and with each candidate. above adds operators' limits.
func (a *advice) simulate(ctx context.Context, p *Process, cfg *config.Config, above func(*config.Config) *config.Config, i int, record *whatif.Record) error {
	run := func(ctx context.Context, d config.Destination) (simulate.Result, error) {
		o := simulate.Options{Breaker: app.BreakerOptions(d), Retry: &d.Retry, For: record.Span() + 24*time.Hour}
		return simulate.Run(ctx, record.Options(o, d.Concurrency)) //nolint:wrapcheck // it names the package
	}
	today := above(cfg)
	if today.Destinations[i].OperatorRate {
		p.note("an operator has set the limit of " + a.Destination + ": a RATE holds once that ends; see tidegate limits show " + a.Destination)
	}
	var played simulate.Result
	for n := adviseJobs; ; n /= 3 {
		record = record.Part(n)
		short, cancel := context.WithTimeout(ctx, adviseOne)
		var err error
		played, err = run(short, today.Destinations[i])
		late := short.Err() != nil
		if cancel(); err == nil {
			break
		} else if ctx.Err() != nil || !late {
			return err
		} else if n < adviseLeast {
			return fmt.Errorf("%d jobs cannot be simulated in %s: too many calls are refused", n, adviseOne)
		}
	}
	a.API, a.From, a.Recorded, a.Jobs = record.API, record.From, record.Span().Seconds(), played.Jobs
	for _, m := range record.Minutes {
		a.Refused += m.Limited
	}
	during := a.Recorded
	if played.Drained == nil {
		during += 24 * 3600
	} else {
		during = max(during, *played.Drained)
	}
	of := func(setting string, r simulate.Result) tried {
		return tried{setting, float64(r.Wasted+r.Down) * 24 * 3600 / during, r.Drained, r.P90, r.Failed + r.Expired, r.Left}
	}
	a.Today = new(of("", played))
	all := candidates(today.Destinations[i], record)
	results := make([]*tried, len(all))
	named := slices.Clone(p.Environ)
	for j, d := range cfg.Destinations { // variables of the one keep their number
		named = append(named, cfg.Variable(j, "NAME")+"="+d.Name)
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for n, one := range all {
		group.Go(func() error {
			other, _, err := config.LoadForAPI(append(slices.Clone(named), cfg.Variable(i, one[0])+"="+one[1]))
			if err != nil {
				all[n] = [2]string{} // it does not go with the other settings
				return nil           //nolint:nilerr // so it is not tried
			}
			if one[0] != "RATE" {
				other = above(other)
			}
			d, _ := other.Destination(a.Destination)
			if r, err := run(ctx, d); err == nil {
				results[n] = new(of(written(cfg, i, one), r))
			}
			return nil
		})
	}
	_ = group.Wait()
	for n, r := range results {
		if r == nil {
			if all[n][0] != "" {
				a.Late = append(a.Late, written(cfg, i, all[n]))
			}
			continue
		}
		a.Tried = append(a.Tried, r.Setting)
		switch {
		case r.Wasted >= a.Today.Wasted || r.Failed > a.Today.Failed:
		case r.slowerThan(a.Today):
			a.Slower = append(a.Slower, *r)
		default:
			a.Better = append(a.Better, *r)
		}
	}
	slices.SortStableFunc(a.Better, func(x, y tried) int { return cmp.Or(cmp.Compare(x.Wasted, y.Wasted), cmp.Compare(x.P90, y.P90)) })
	return nil
}

// slowerThan reports whether a setting takes more than a twentieth longer.
func (t *tried) slowerThan(today *tried) bool {
	const most = 1.05
	if t.Drained != nil && today.Drained != nil {
		return *t.Drained > most**today.Drained
	}
	return t.Drained == nil && (today.Drained != nil || float64(t.Left) > most*float64(today.Left))
}

// written is a setting as its user writes it: a variable, or a line of the destinations file.
func written(cfg *config.Config, i int, setting [2]string) string {
	if _, path, ofFile := strings.Cut(cfg.Setting(i, setting[0]), ": "); ofFile {
		if strings.HasPrefix(path, "defaults.") { // which hold for others, too
			path = "destinations." + cfg.Destinations[i].Name + "." + strings.ToLower(setting[0])
		}
		return path + ": " + setting[1]
	}
	return cfg.Variable(i, setting[0]) + "=" + setting[1]
}

// candidates are the settings that are tried: names and values.
func candidates(d config.Destination, r *whatif.Record) (out [][2]string) {
	b := d.Breaker
	add := func(name, value string) {
		if !slices.Contains(out, [2]string{name, value}) {
			out = append(out, [2]string{name, value})
		}
	}
	if !b.Enabled {
		add("CIRCUIT_BREAKER_ENABLED", "true")
	}
	if !b.Learn {
		add("CIRCUIT_BREAKER_LEARN", "true")
	}
	if !b.TrustHints {
		add("CIRCUIT_BREAKER_TRUST_HINTS", "true")
	}
	rates := r.Rates()
	if len(rates) > 0 && r.From != "declared" {
		add("RATE", rates.String())
		if first := rates[0]; first.Zone == "" && first.Calls > 3 { // some at once, and never more in a window
			burst := first.Calls / 4
			rates := slices.Clone(rates)
			rates[0].Calls, rates[0].Burst = first.Calls-burst, burst
			add("RATE", rates.String())
		}
	}
	if d.Preset == "" {
		if name := presetOf(d.URL); name != "" {
			add("PRESET", name)
		}
	}
	cooldown := time.Duration(b.Cooldown)
	others := []time.Duration{cooldown / 2, 2 * cooldown}
	if len(rates) > 0 {
		others = append(others, rates[0].Per)
	}
	for _, other := range others {
		if other >= time.Millisecond && other != cooldown && other <= time.Duration(b.MaxCooldown) {
			add("CIRCUIT_BREAKER_COOLDOWN_MS", strconv.FormatInt(other.Milliseconds(), 10))
		}
	}
	for n := 1; n < b.FailureThreshold && n <= 2; n++ {
		add("CIRCUIT_BREAKER_FAILURE_THRESHOLD", strconv.Itoa(n))
	}
	return out
}

// presetOf is the preset of a URL's host; "" if there is none.
func presetOf(address string) string {
	host := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			return ""
		}
		return u.Hostname()
	}
	for _, name := range presets.Names() {
		if p, _ := presets.Get(name); p.Settings["URL"] != "" && host(p.Settings["URL"]) == host(address) {
			return name
		}
	}
	return ""
}

func (r *rows) addAdvice(a *advice) {
	if a.Missing != "" {
		r.rest = a.Destination + ": " + a.Missing + "\n"
		return
	}
	span := time.Duration(a.Recorded) * time.Second
	r.rest = fmt.Sprintf("simulated: %s of %s, in which the API refused %s (%.0f a day); limits: %s, %s\n",
		plural(a.Jobs, "job", "jobs"), explain.Duration(span), plural(a.Refused, "call", "calls"), float64(a.Refused)*24/span.Hours(), a.From, a.API)
	drained := func(t tried) string {
		if t.Drained == nil {
			return fmt.Sprintf("no: %s left", plural(t.Left, "job", "jobs"))
		}
		return "in " + explain.Duration(time.Duration(*t.Drained*float64(time.Second)))
	}
	switch {
	case a.Today.Wasted == 0:
		r.rest = "no call is wasted with today's settings\n" + r.rest
	case len(a.Better) == 0:
		r.rest = "nothing that was tried wastes fewer calls and is not slower: " + strings.Join(a.Tried, ", ") + "\n" + r.rest
	}
	for _, t := range a.Slower {
		r.rest += fmt.Sprintf("slower: %s: %.0f wasted a day, drained %s\n", t.Setting, t.Wasted, drained(t))
	}
	if len(a.Late) > 0 {
		r.rest += "there was no time for: " + strings.Join(a.Late, ", ") + "\n"
	}
	r.add("SETTING", "WASTED A DAY", "DRAINED", "WAIT, 90 %")
	for _, t := range append([]tried{*a.Today}, a.Better...) {
		r.add(cmp.Or(t.Setting, "today"), strconv.FormatFloat(t.Wasted, 'f', 0, 64), drained(t), explain.Duration(time.Duration(t.P90*float64(time.Second))))
	}
}
