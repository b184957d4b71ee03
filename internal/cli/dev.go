package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/base/redisconn/embedded"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/call/keyurl"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/config/logging"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/lab/fakeapi/loopback"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/explain"
)

type devCmd struct {
	Fake string `placeholder:"20/10s" help:"Serve a fake API that accepts so many calls in a window, as destination demo."`
	File string `placeholder:"FILE" help:"Destinations file, as DESTINATIONS_FILE; changes are taken up at once."`
	Data string `default:".tidegate" placeholder:"DIR" help:"Folder of the Redis that runs without REDIS_URL. Default: ${default}."`
}

// fakeDestination is the name of the destination that --fake adds.
const fakeDestination = "demo"

const (
	// mostTried bounds the jobs of the second thing to try.
	mostTried = 1000
	// embeddedTimeout bounds replies of the embedded Redis: it is slow, never away.
	embeddedTimeout = time.Minute
	// fakeLatency is the time that a response of the fake API takes.
	fakeLatency = 50 * time.Millisecond
)

// dev is what the command serves.
type dev struct {
	cmd      *devCmd
	environ  []string
	cfg      *config.Config
	embedded bool   // Redis is in this process
	folder   string // of the Redis that runs without REDIS_URL; "" without
	fake     *fakeapi.API
	fakeURL  string // "" without --fake
	burst    int    // more jobs than the fake API accepts at once
	warned   []config.Warning
	listen   net.Listener
	closers  []func() error
}

// Run serves until ctx ends.
func (c *devCmd) Run(ctx context.Context, p *Process) (err error) {
	p = p.sharedOutput()
	d := &dev{cmd: c, environ: p.Environ}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.prepare(ctx, p); err != nil {
		return err
	}
	if err := p.write([]byte(d.greeting())); err != nil {
		return err
	}
	return d.serve(ctx, p)
}

// close stops what prepare has started.
func (d *dev) close() (err error) {
	for i := range d.closers {
		err = errors.Join(err, d.closers[len(d.closers)-1-i]())
	}
	return err
}

// serve runs the worker and the API until ctx ends.
func (d *dev) serve(ctx context.Context, p *Process) error {
	log := logging.NewLogger(p.Stderr, isTerminal(p.Stderr), d.cfg.Log, d.cfg.Redactor())
	ofWorker, ofAPI := log, log.With("part", "api")
	if !d.cfg.IsSet("LOG_LEVEL") {
		ofWorker, ofAPI = slog.New(devHandler{log.Handler(), true}), slog.New(devHandler{ofAPI.Handler(), false})
	}
	logging.SetStandard(log)
	for _, w := range d.warned {
		p.warn(w.String())
	}
	v := p.version()
	process := app.Process{Version: v.Version, Commit: v.Commit, Environ: d.environ, Listener: d.listen, OnTransition: incidents(p)}
	if d.embedded {
		process.RedisTimeout = embeddedTimeout
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return app.RunWorker(running, d.cfg, ofWorker, process) })
	group.Go(func() error { return app.RunAPI(running, d.cfg, ofAPI, process) })
	return group.Wait()
}

// prepare starts what has to be there before the worker and the API.
func (d *dev) prepare(ctx context.Context, p *Process) error {
	if d.cmd.File != "" {
		d.set("DESTINATIONS_FILE", d.cmd.File)
	}
	if p.env("OPS_ADDR") == "" {
		d.set("OPS_ADDR", "off")
	}
	if err := d.startFake(); err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	if len(d.cfg.Destinations) == 0 {
		return config.Errors{&config.Error{Variable: "DESTINATION_0_NAME", Problem: "is not set, and no destination is configured", Fix: "try: tidegate dev --fake 20/10s; or name a destinations file with --file"}}
	}
	if err := access.CheckAddress(d.cfg.API.ListenAddr, d.cfg.API.TokensFile != ""); err != nil {
		return config.Errors{&config.Error{Variable: "LISTEN_ADDR", Problem: err.Error()}}
	}
	own := d.cfg.RedisURL.Reveal() == embedded.URLIn(d.cmd.Data) // exported for other commands
	if own || !d.cfg.IsSet("REDIS_URL") || isEmbedded(d.cfg) {
		server, err := embedded.StartIn(ctx, d.cmd.Data)
		if err != nil {
			return err
		}
		d.closers = append(d.closers, server.Close)
		d.embedded, d.folder = !server.Kept, d.cmd.Data
		d.set("REDIS_URL", server.URL())
		if err := d.load(); err != nil {
			return err
		}
	}
	var err error
	var l net.ListenConfig
	d.listen, err = l.Listen(ctx, "tcp", d.cfg.API.ListenAddr)
	if errors.Is(err, syscall.EADDRINUSE) && !d.cfg.IsSet("LISTEN_ADDR") {
		d.listen, err = l.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return config.Errors{&config.Error{Variable: "LISTEN_ADDR", Problem: err.Error(), Fix: "set it to an address of this machine with a free port"}}
	}
	d.closers = append(d.closers, func() error { _ = d.listen.Close(); return nil }) // again, if the API had started
	if !d.cfg.IsSet("PUBLIC_URL") {                                                  // for {{ callback }}
		d.set("PUBLIC_URL", "http://"+d.listen.Addr().String())
		return d.load()
	}
	return nil
}

// set sets a variable.
func (d *dev) set(name, value string) {
	var out []string
	for _, entry := range d.environ {
		if !strings.HasPrefix(entry, name+"=") {
			out = append(out, entry)
		}
	}
	d.environ = append(out, name+"="+value)
}

func (d *dev) load() (err error) {
	d.cfg, d.warned, err = config.Load(d.environ)
	return err
}

// startFake starts the fake API and adds its destination.
func (d *dev) startFake() error {
	if d.cmd.Fake == "" {
		return nil
	}
	fake := fakeAPICmd{Limit: d.cmd.Fake, Hints: []string{"retry-after"}, Latency: fakeLatency}
	o, err := fake.options()
	if err != nil {
		return inputErrorf("--fake: %w", err)
	}
	d.burst = 10
	if w, limited := o.Limiter.(fakeapi.FixedWindow); limited {
		d.burst = min(w.Quota+max(w.Quota/2, 1), mostTried)
	}
	d.fake = fakeapi.New(o)
	server := loopback.NewServer("fake API", fakeHandler(d.fake))
	if d.fakeURL, err = server.Start(""); err != nil {
		return err
	}
	d.closers = append(d.closers, server.Close)
	block := 0
	for strings.Contains("\n"+strings.Join(d.environ, "\n"), fmt.Sprintf("\nDESTINATION_%d_", block)) {
		block++
	}
	for name, value := range map[string]string{"NAME": fakeDestination, "URL": d.fakeURL, "RETRY": "max=3,initial=1s"} {
		d.set(fmt.Sprintf("DESTINATION_%d_%s", block, name), value)
	}
	return nil
}

// greeting says what runs, and three things to try.
func (d *dev) greeting() string {
	var b strings.Builder
	url := "http://" + d.listen.Addr().String()
	fmt.Fprintf(&b, "Dashboard and API at %s\n", url)
	names := make([]string, len(d.cfg.Destinations))
	first := d.cfg.Destinations[0]
	for i, one := range d.cfg.Destinations {
		names[i] = one.Name
		if d.fakeURL != "" && one.Name == fakeDestination {
			first = one
		}
	}
	fmt.Fprintf(&b, "Destinations: %s\n", text.Cut(strings.Join(names, ", "), 200))
	if d.fakeURL != "" {
		fmt.Fprintf(&b, "%s is a fake API that accepts %s; what it counts is at %s/_stats\n", fakeDestination, d.cmd.Fake, d.fakeURL)
	}
	if d.folder != "" {
		where := "is redis-server, which keeps its data in " + d.folder + ", for development only."
		if d.embedded {
			where = "is in this process, and its jobs end with it: redis-server is not on PATH."
		}
		fmt.Fprintf(&b, "Redis %s\nOther commands reach it, while this one runs, after:\n  export REDIS_URL=$(cat '%s')\n", where, filepath.Join(d.folder, "redis-url"))
	}
	job, authorization := `{"destination":"`+first.Name+`",`, ""
	if strings.Contains(first.URL, keyurl.Place) {
		job += `"key":"alice",`
	}
	if d.cfg.API.TokensFile != "" {
		authorization = ` -H "Authorization: Bearer $TOKEN"`
	} else {
		b.WriteString("Programs on this machine need no token; requests of web pages of other sites are refused.\n")
	}
	post := "  curl -s " + url + "/v1/jobs" + authorization + " -H 'Content-Type: application/"
	fmt.Fprintf(&b, "\nTry, in another shell:\n\n  # a job\n%sjson' -d '%s\"payload\":{\"title\":\"Dawn\"}}'\n", post, job)
	if d.fakeURL != "" {
		fmt.Fprintf(&b, "\n  # more jobs than the API accepts at once\n  for n in $(seq %d); do echo '%s\"payload\":{\"n\":'$n'}}'; done |\n  %sx-ndjson' --data-binary @-\n", d.burst, job, post)
		fmt.Fprintf(&b, "\n  # why one of them waits, and until when\n  curl -s '%s/v1/jobs?destination=%s&status=pending&limit=1'%s\n", url, first.Name, authorization)
	} else {
		fmt.Fprintf(&b, "\n  # its jobs, and why they wait\n  curl -s '%s/v1/jobs?destination=%s'%s\n", url, first.Name, authorization)
		fmt.Fprintf(&b, "\n  # its circuit breaker\n  curl -s %s/v1/breakers/%s%s\n", url, first.Name, authorization)
	}
	return b.String() + "\nCtrl-C stops it.\n\n"
}

// incidents prints the beginning and the end of each incident, a line each, from several goroutines: see sharedOutput.
func incidents(p *Process) func(breaker.Event) {
	return func(e breaker.Event) {
		name, now := e.Name, time.Now()
		if e.Key != "" && !strings.Contains(name, "/") {
			name += "/" + e.Key
		}
		var line string
		switch {
		case e.To == breaker.Open && e.From == breaker.Closed:
			line = explain.Cause(e.Cause) + "; no calls until it is reset"
			if !e.OpenUntil.IsZero() {
				line = explain.Cause(e.Cause) + "; no calls until " + explain.At(e.OpenUntil, now)
			}
		case e.To == breaker.Closed && e.From != breaker.Closed && e.Cause != breaker.CauseLost:
			line = fmt.Sprintf("calls go on after %s; %s refused", explain.Duration(e.At.Sub(e.OpenedAt)), plural(e.Wasted, "call was", "calls were"))
		default:
			return
		}
		fmt.Fprintf(p.Stdout, "%s  %s: %s\n", now.Format(time.TimeOnly), text.OneLine(name), text.OneLine(line))
	}
}

// devHandler logs what a developer has to see: problems, and changes of the destinations file once.
// Incidents have a line of their own.
type devHandler struct {
	slog.Handler

	file bool // logs changes of the destinations file
}

// Handle implements slog.Handler.
func (h devHandler) Handle(ctx context.Context, r slog.Record) error {
	shown := r.Level >= slog.LevelWarn
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "incident":
			shown = false
		case app.FileAttr:
			shown = h.file
		}
		return true
	})
	if !shown {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h devHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return devHandler{h.Handler.WithAttrs(attrs), h.file}
}

// isEmbedded reports whether REDIS_URL is a Redis that ends with its process.
func isEmbedded(cfg *config.Config) bool {
	target, err := redisconn.Parse(cfg.RedisURL.Reveal())
	return err == nil && target.Kind == redisconn.Embedded
}
