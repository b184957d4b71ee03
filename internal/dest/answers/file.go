package answers

import (
	"cmp"
	"context"
	"io/fs"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/internal/base/outage"
	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Options of Open.
type Options struct {
	// File of rules, which is read again when it changes. While the new file is not valid, the
	// old rules stay in use. "": no file.
	File string
	// Preset are rules that come after the file's rules; nil: none.
	Preset *Rules
	// Logger gets a line when the file was read again, when it is no longer valid, and at most
	// once a minute for each rule that fails on answers. Default: slog.Default().
	Logger *slog.Logger
	// Failed is called for each expression that fails on an answer; nil: none.
	Failed func(Failure)
	// CheckEvery is the least interval of checks whether the file has changed. Default 1 s.
	CheckEvery time.Duration
}

// Decider decides by the rules of a destination.
type Decider struct {
	file   *tokens.Watcher[*Rules] // nil without a file
	o      Options
	logged outage.Limiter
}

var _ httpdest.Rules = (*Decider)(nil)

// Open reads the file. The error is tokens.Errors.
func Open(o Options) (*Decider, error) {
	o.Logger = cmp.Or(o.Logger, slog.Default())
	d := &Decider{o: o, logged: outage.Limiter{Every: time.Minute}}
	if o.File == "" {
		return d, nil
	}
	log := o.Logger.With("file", o.File)
	file, _, err := tokens.Watch(tokens.WatchOptions[*Rules]{
		Path: o.File, Every: o.CheckEvery, Parse: Parse,
		Changed: func(r *Rules, _ fs.FileInfo) { log.Info("the answer rules were read again", "rules", r.Len()) },
		Failed: func(err error) {
			log.Warn("the answer rules cannot be used; the rules read before stay in use", "error", err)
		},
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // tokens.Errors, which the caller completes with the file
	}
	d.file = file
	return d, nil
}

// Decide implements httpdest.Rules.
func (d *Decider) Decide(a httpdest.Answered) (httpdest.Decision, bool) {
	got := d.Explain(a)
	for _, failure := range got.Failures {
		if d.o.Failed != nil {
			d.o.Failed(failure)
		}
		if d.logged.Allow(failure.place()) {
			d.o.Logger.Warn("an answer rule failed on an answer; this is logged once a minute", "rule", failure.place(),
				"error", withoutValues(failure.Err, failure.source).Error(), "status", a.Status, "job", a.Job.ID)
		}
	}
	if got.Rule == 0 {
		return got.Decision, false
	}
	if log := d.o.Logger; log.Enabled(context.Background(), slog.LevelDebug) {
		attrs := []any{"job", a.Job.ID, "rule", got.Rule, "then", string(got.Then), "status", a.Status}
		if got.Cost != nil {
			attrs = append(attrs, "cost", *got.Cost)
		}
		log.Debug("an answer rule decided", attrs...)
	}
	return got.Decision, true
}

// Explain is Decide with all that led to the decision, and without log and counter.
func (d *Decider) Explain(a httpdest.Answered) Decided {
	return decide(a, d.rules()...)
}

// rules returns the rules of the file, then of the preset.
func (d *Decider) rules() []*Rules {
	var out []*Rules
	if d.file != nil {
		out = append(out, d.file.Current())
	}
	if d.o.Preset != nil {
		out = append(out, d.o.Preset)
	}
	return out
}
