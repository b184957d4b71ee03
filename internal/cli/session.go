package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/app"
	"github.com/tidegate/tidegate/internal/base/redisconn"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// defaultPatience is how long a command waits for Redis, and for a collector of traces: far less
// than a worker, because a person waits for it.
const defaultPatience = 2 * time.Second

// session is what commands have that look at jobs and breakers, or change them.
type session struct {
	*ops.System

	cfg    *config.Config
	rdb    redis.UniversalClient
	client *jobs.Client
	traced *app.Tracing // nil unless it is wanted
	closer io.Closer
}

// loadConfig reads the configuration, without what only calls of APIs need, and prints its
// warnings, except the ones that do not concern this command.
func (p *Process) loadConfig() (*config.Config, error) {
	return p.loadWarning(config.LoadForAPI, func(w config.Warning) bool { return !w.AboutAlerts() && !w.AboutWorkers() })
}

// everything is for commands that all warnings concern.
func everything(config.Warning) bool { return true }

// loadWarning reads the configuration and prints the warnings that are wanted.
func (p *Process) loadWarning(load func([]string) (*config.Config, []config.Warning, error), wanted func(config.Warning) bool) (*config.Config, error) {
	cfg, warnings, err := load(p.Environ)
	for _, w := range warnings {
		if wanted(w) {
			p.warn(w.String())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return cfg, nil
}

// connect opens Redis and waits a moment for it. close must be called.
func (p *Process) connect(ctx context.Context, cfg *config.Config) (*session, error) {
	if isEmbedded(cfg) {
		return nil, inputErrorf("REDIS_URL is the embedded Redis, which would end with this command: run tidegate dev, and export REDIS_URL=$(cat .tidegate/redis-url)")
	}
	// A failure is reported once: by the returned error.
	quiet := slog.New(slog.DiscardHandler)
	rdb, closer, err := redisconn.Open(ctx, cfg.RedisURL.Reveal(), redisconn.Options{ClientName: "tidegate-cli"})
	if err != nil {
		return nil, fmt.Errorf("open Redis: %w", err)
	}
	s := &session{cfg: cfg, rdb: rdb, closer: closer}
	if err := redisconn.Wait(ctx, rdb, quiet, cmp.Or(p.patience, defaultPatience)); err != nil {
		return nil, errors.Join(err, closer.Close())
	}
	log := slog.New(&warnHandler{p: p})
	s.traced = app.StartTracing(ctx, p.Environ, p.version().Version, log)
	s.client, err = app.NewClient(rdb, cfg, s.traced, log)
	if err != nil {
		s.traced.Stop(defaultPatience)
		return nil, errors.Join(err, closer.Close())
	}
	s.System = ops.New(ops.Options{Redis: rdb, Client: s.client, Log: log})
	return s, nil
}

// open connects, for a command that needs Redis alone.
func (p *Process) open(ctx context.Context) (*session, error) {
	cfg, err := p.loadWarning(config.LoadForRedis, func(w config.Warning) bool { return !w.AboutAlerts() && !w.AboutWorkers() })
	if err != nil {
		return nil, err
	}
	return p.connect(ctx, cfg)
}

// explainRefusal adds to an error of Redis that the user may not do something which
// rights are missing: Redis itself does not say it of what a script does.
func (p *Process) explainRefusal(ctx context.Context, err error) error {
	if _, known := errors.AsType[*redisconn.RightsError](err); known || !redisconn.Refused(err) {
		return err
	}
	s, failed := p.open(ctx)
	if failed != nil {
		return err
	}
	defer s.close()
	if missing := redisconn.CheckRights(ctx, s.rdb, s.cfg.RedisNamespace); missing != nil {
		return fmt.Errorf("%w; %s", err, problem(missing))
	}
	return err
}

// close ends the session. What it could not close ends with the process.
func (s *session) close() {
	s.traced.Stop(defaultPatience)
	_ = s.closer.Close()
}

// env returns the value of an environment variable.
func (p *Process) env(name string) string {
	for _, entry := range p.Environ {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value
		}
	}
	return ""
}

// why returns the operator that acts, user@host of the command's user, and the reason.
func (p *Process) why(r reason) ops.Why {
	name := p.env("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	by := text.OneLine(cmp.Or(name, "unknown")) + "@" + text.OneLine(cmp.Or(host, "unknown"))
	return ops.Why{By: by, Reason: string(r)}
}

// warnHandler prints warnings of our libraries as the command's own.
type warnHandler struct {
	p     *Process
	attrs []slog.Attr
}

var _ slog.Handler = (*warnHandler)(nil)

func (h *warnHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h *warnHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	add := func(a slog.Attr) bool {
		fmt.Fprintf(&b, " (%s: %s)", a.Key, a.Value)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.p.warn(b.String())
	return nil
}

func (h *warnHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &warnHandler{p: h.p, attrs: append(slices.Clip(h.attrs), attrs...)}
}

func (h *warnHandler) WithGroup(string) slog.Handler { return h }

// warnUnserved warns if no worker serves a destination any more. Of one that none has served yet the client's log has
// warned.
func (s *session) warnUnserved(ctx context.Context, p *Process, destination string) {
	if gone, _, err := s.client.UnservedFor(ctx, destination); err == nil && gone > 0 {
		p.warn(fmt.Sprintf("no worker has served %s for %s; its jobs wait until one does", destination, explain.Duration(gone)))
	}
}
