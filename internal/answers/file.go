package answers

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/tidegate/tidegate/internal/outage"
	"github.com/tidegate/tidegate/internal/tokens"
	"github.com/tidegate/tidegate/publisher"
)

// FileOptions change how a file of rules is used.
type FileOptions struct {
	// Logger gets a line when the file was read again, when it is no longer valid, and at most
	// once a minute for each rule that fails on answers. Default: slog.Default().
	Logger *slog.Logger
	// Behind decide what those of the file do not; nil is none.
	Behind *Rules
	// Failed is called for each expression that fails on an answer; nil is none.
	Failed func(Failure)
	// CheckEvery is the least interval of checks whether the file has changed. Default 1 s.
	CheckEvery time.Duration
}

// File are the rules of a file, which is read again when it changes. While the new file is not
// valid, the old rules stay in use.
type File struct {
	file   *tokens.Watcher[*Rules] // nil: none
	o      FileOptions
	logged outage.Limiter
}

var _ publisher.Rules = (*File)(nil)

// Open reads a file of rules; without a path there are those Behind it only. The error is
// tokens.Errors.
func Open(path string, o FileOptions) (*File, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if path == "" {
		return &File{o: o, logged: outage.Limiter{Every: time.Minute}}, nil
	}
	o.Logger = o.Logger.With("file", path)
	file, _, err := tokens.Watch(tokens.WatchOptions[*Rules]{
		Path: path, Every: o.CheckEvery, Parse: Parse,
		Changed: func(r *Rules, _ fs.FileInfo) { o.Logger.Info("the answer rules were read again", "rules", r.Len()) },
		Failed: func(err error) {
			o.Logger.Warn("the answer rules cannot be used; the rules read before stay in use", "error", err)
		},
	})
	if err != nil {
		return nil, err //nolint:wrapcheck // tokens.Errors, which the caller completes with the file
	}
	return &File{file: file, o: o, logged: outage.Limiter{Every: time.Minute}}, nil
}

// Decide implements publisher.Rules.
func (f *File) Decide(a publisher.Answered) (publisher.Decision, bool) {
	d := f.decide(a)
	for _, failure := range d.Failures {
		if f.o.Failed != nil {
			f.o.Failed(failure)
		}
		if f.logged.Allow(fmt.Sprint(failure.Rule, failure.Field)) {
			f.o.Logger.Warn("an answer rule failed on an answer; this is logged once a minute", "rule", failure.Rule, "field", failure.Field,
				"error", failure.logged(), "status", a.Status, "job", a.Job.ID)
		}
	}
	if d.Rule == 0 {
		return publisher.Decision{}, false
	}
	if log := f.o.Logger; log.Enabled(context.Background(), slog.LevelDebug) {
		attrs := []any{"job", a.Job.ID, "rule", d.Rule, "then", string(d.Then), "status", a.Status}
		if d.Cost != nil {
			attrs = append(attrs, "cost", *d.Cost)
		}
		log.Debug("an answer rule decided", attrs...)
	}
	return d.Decision, true
}

func (f *File) decide(a publisher.Answered) Decided {
	var d Decided
	if f.file != nil {
		d = f.file.Current().Decide(a)
	}
	if d.Rule > 0 || f.o.Behind == nil {
		return d
	}
	behind := f.o.Behind.Decide(a)
	behind.By = "preset " + behind.By
	behind.Failures = append(d.Failures, behind.Failures...)
	return behind
}
