package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/dest/presets"
	"github.com/tidegate/tidegate/internal/lab/simulate"
	"github.com/tidegate/tidegate/internal/serve/dashboard/chart"
	"github.com/tidegate/tidegate/internal/view/explain"
)

type simulateCmd struct {
	Config      string        `placeholder:"FILE" help:"File of NAME=value lines, above the environment. Default: the environment."`
	Against     string        `placeholder:"FILE" help:"Another such file, to compare with."`
	Destination string        `short:"d" placeholder:"NAME" help:"Destination in both. Default: the first one."`
	API         string        `name:"api" required:"" placeholder:"LIMITS" help:"The API's limits, such as window:60/1h; see below."`
	Jobs        int           `placeholder:"N" help:"Jobs that wait at the start."`
	Arrivals    string        `placeholder:"poisson:10/1m" help:"Jobs that come later, at random times."`
	ExpireIn    time.Duration `placeholder:"6h" help:"Time after which a job expires. Default: never."`
	Workers     int           `default:"1" placeholder:"N" help:"Workers. Default: ${default}."`
	Concurrency int           `placeholder:"N" help:"Calls at a time of each worker. Default: the destination's CONCURRENCY."`
	Latency     time.Duration `default:"200ms" placeholder:"200ms" help:"Time of a call. Default: ${default}."`
	For         time.Duration `default:"24h" placeholder:"24h" help:"Time that is simulated, unless all jobs end before. Default: ${default}."`
	Seed        uint64        `default:"1" placeholder:"N" help:"The same seed gives the same result. Default: ${default}."`
	SVG         string        `name:"svg" placeholder:"FILE" help:"Draw calls, refusals and backlog over time into this file."`
	outputFlag
}

// Validate checks the bounds of what is simulated.
func (c *simulateCmd) Validate() error {
	switch {
	case c.Jobs == 0 && c.Arrivals == "":
		return inputErrorf("give --jobs, --arrivals or both")
	case c.Jobs < 0 || c.Jobs > 1_000_000:
		return inputErrorf("--jobs must be from 1 to 1000000")
	case c.Workers < 1 || c.Workers > 1000 || c.Concurrency < 0 || c.Concurrency > 10_000:
		return inputErrorf("--workers must be from 1 to 1000, --concurrency from 1 to 10000")
	case c.Latency < time.Millisecond || c.Latency > 24*time.Hour || c.For < time.Second || c.For > 366*24*time.Hour || c.ExpireIn < 0:
		return inputErrorf("--latency must be from 1ms to 24h, --for from 1s to 8784h")
	}
	return nil
}

// simulated is a configuration and the result of its simulation.
type simulated struct {
	Config string `json:"config"`
	simulate.Result
}

// simulation is the document.
type simulation struct {
	API  string      `json:"api"`
	Runs []simulated `json:"runs"`
}

// Run simulates the configurations, and prints them side by side.
func (c *simulateCmd) Run(ctx context.Context, p *Process) error {
	debug.SetGCPercent(400) // the scripts' garbage; this process does nothing else
	files := []string{c.Config}
	if c.Against != "" {
		files = append(files, c.Against)
	}
	var all []simulate.Options
	doc := simulation{Runs: make([]simulated, len(files))}
	for i, file := range files {
		o, err := c.configured(p, []string{"--config", "--against"}[i], file)
		if err != nil {
			return err
		}
		if i == 0 {
			if o.API, err = c.api(p); err == nil {
				o.Arrivals, err = c.arrivals()
			}
			if err != nil {
				return err
			}
			doc.API = o.API
		} else {
			o.API, o.Arrivals = all[0].API, all[0].Arrivals
		}
		all = append(all, o)
		if doc.Runs[i].Config = filepath.Base(file); file == "" {
			doc.Runs[i].Config = "environment"
		}
	}
	if _, err := simulate.ParseAPI(doc.API); err != nil {
		return inputErrorf("--api: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, o := range all {
		group.Go(func() (err error) {
			doc.Runs[i].Result, err = simulate.Run(ctx, o)
			return err //nolint:wrapcheck // it names the package
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // likewise
	}
	if c.SVG != "" {
		if err := drawSimulation(c.SVG, doc.Runs); err != nil {
			return fmt.Errorf("--svg: %w", err)
		}
	}
	return c.show(p, doc, func(r *rows) { r.addSimulation(doc.Runs, c.For) })
}

// configured reads a configuration.
func (c *simulateCmd) configured(p *Process, flag, file string) (simulate.Options, error) {
	environ := slices.Clone(p.Environ)
	if file != "" {
		content, err := readInput(p.Stdin, file, 1<<20)
		if err != nil {
			return simulate.Options{}, inputErrorf("%s: %w", flag, err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export "), "=")
			if found && !strings.HasPrefix(name, "#") {
				environ = append(environ, name+"="+strings.Trim(value, `"'`))
			}
		}
	}
	sets := func(name string) bool {
		return slices.ContainsFunc(environ, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	if !sets("DESTINATIONS_FILE") && !sets("DESTINATION_0_NAME") {
		environ = append(environ, "DESTINATION_0_NAME=simulated")
	}
	if sets("DESTINATION_0_NAME") || !sets("DESTINATIONS_FILE") {
		if !sets("DESTINATION_0_URL") && !sets("DESTINATION_0_PRESET") {
			environ = append(environ, "DESTINATION_0_URL=http://127.0.0.1") // it is not called
		}
	}
	q, said := *p, file == ""
	q.Environ = environ
	ofFile := func() {
		if !said {
			p.note(flag + " " + file + ":")
		}
		said = true
	}
	cfg, err := q.loadWarning(config.LoadForAPI, func(w config.Warning) bool {
		ofUs := strings.HasPrefix(w.Variable, "DESTINATION") || strings.HasPrefix(w.Variable, "CIRCUIT_BREAKER_")
		if ofUs {
			ofFile()
		}
		return ofUs
	})
	if err != nil {
		ofFile()
		return simulate.Options{}, err
	}
	if err := cfg.RequireDestinations(); err != nil {
		return simulate.Options{}, err //nolint:wrapcheck // as elsewhere
	}
	d := cfg.Destinations[0]
	if c.Destination != "" {
		var known bool
		if d, known = cfg.Destination(c.Destination); !known {
			return simulate.Options{}, inputErrorf("--destination: %s is not configured", clip(c.Destination, 60))
		}
	}
	each := c.Concurrency
	if each == 0 {
		each = d.Concurrency
	}
	return simulate.Options{
		Breaker: app.BreakerOptions(d), Retry: &d.Retry, Slots: c.Workers * each, Latency: c.Latency, For: c.For, ExpireIn: c.ExpireIn, Seed: c.Seed,
	}, nil
}

// api is --api with the limits that presets document.
func (c *simulateCmd) api(p *Process) (string, error) {
	parts := strings.Split(c.API, ",")
	for i, part := range parts {
		kind, name, _ := strings.Cut(part, ":")
		if kind != "preset" {
			continue
		}
		preset, known := presets.Get(strings.ToLower(name))
		if !known {
			return "", inputErrorf("--api: there is no preset %s; tidegate presets lists them", clip(name, 40))
		}
		at := slices.IndexFunc(preset.Limits, func(l presets.Limit) bool { _, err := breaker.ParseRate(l.Limit); return err == nil })
		if at < 0 {
			return "", inputErrorf("--api: the preset %s has no limit with a number: give it, such as window:60/1h", preset.Name)
		}
		parts[i] = "window:" + preset.Limits[at].Limit
		p.note(preset.Title + ": " + preset.Limits[at].Limit + ", " + preset.Limits[at].Of + "; " + preset.Hints)
	}
	return strings.Join(parts, ","), nil
}

// arrivals returns when jobs come, since the start.
func (c *simulateCmd) arrivals() ([]time.Duration, error) {
	waiting := make([]time.Duration, c.Jobs)
	if c.Arrivals == "" {
		return waiting, nil
	}
	kind, rate, _ := strings.Cut(c.Arrivals, ":")
	r, err := breaker.ParseRate(rate)
	if kind != "poisson" || err != nil || r.Zone != "" {
		return nil, inputErrorf("--arrivals: want jobs per time, such as poisson:10/1m")
	}
	if float64(r.Calls)*c.For.Seconds()/r.Per.Seconds() > 1_000_000 {
		return nil, inputErrorf("--arrivals: more than 1000000 jobs in %s: shorten --for", c.For)
	}
	return slices.Concat(waiting, simulate.Poisson(r, c.For, c.Seed)), nil
}

func (r *rows) addSimulation(runs []simulated, during time.Duration) {
	head, results := []string{""}, make([]simulate.Result, len(runs))
	for i, run := range runs {
		head, results[i] = append(head, run.Config), run.Result
	}
	r.add(head...)
	for _, row := range simulate.Rows(during, explain.Duration, results...) {
		r.add(row...)
	}
}

// drawSimulation writes two charts for each run, below each other.
func drawSimulation(file string, runs []simulated) error {
	const width, height, title = 800, 300, 24
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="14"><style>`+
		`.grid,.tick{stroke:#ccc}.axis{fill:#555;font-size:9px}.none{font-size:11px}.hit{fill:none;pointer-events:all}`+
		`.ok{fill:#2f9e63}.bad{fill:#d3453b}.info{fill:#3b74c4}.line{fill:none;stroke:#3b74c4;stroke-width:1.5}.under{opacity:.25}`+
		`</style><rect width="100%%" height="100%%" fill="#fff"/>`, 2*width, len(runs)*(height+title))
	titles, results := make([]string, len(runs)), make([]simulate.Result, len(runs))
	for i, run := range runs {
		titles[i], results[i] = run.Config, run.Result
	}
	for i, pair := range chart.Simulated(width, titles, results) {
		for column, c := range pair {
			drawn, err := c.SVG()
			if err != nil {
				return err //nolint:wrapcheck // the caller names the flag
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, column*width+34, i*(height+title)+18, html.EscapeString(c.Title))
			b.WriteString(strings.Replace(string(drawn), "<svg ", fmt.Sprintf(`<svg x="%d" y="%d" width="%d" height="%d" `, column*width, i*(height+title)+title, width, height), 1))
		}
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o644) //nolint:gosec,wrapcheck // a picture; the caller names the flag
}
