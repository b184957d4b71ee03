package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
	"github.com/tidegate/tidegate/internal/config"
)

// fileEvery is the interval at which the destinations file is read. Reading it finds each change, also
// the swap of a symbolic link by which the kubelet updates a ConfigMap.
const fileEvery = time.Second

// FileAttr names the destinations file in the log.
const FileAttr = "file"

// destinationsFile is the result of the latest change of the destinations file.
type destinationsFile struct {
	log   *slog.Logger
	name  string
	valid prometheus.Gauge

	mu      sync.Mutex
	problem error
	sent    bool   // a configuration is being taken up
	untaken bool   // the last one that was sent could not be
	read    string // version of the latest content
	held    string // version of the content in use
	secrets *secret.Redactor
}

// newDestinationsFile counts nothing if cfg has no file.
func newDestinationsFile(cfg *config.Config, registry *prometheus.Registry, log *slog.Logger) *destinationsFile {
	f := &destinationsFile{log: log, name: cfg.DestinationsFile, valid: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidegate_destinations_file_valid",
		Help: "0 while the destinations file cannot be taken up as it is: the settings before hold.",
	})}
	f.valid.Set(1)
	if cfg.DestinationsFile != "" {
		registry.MustRegister(f.valid)
		f.held, f.secrets = versionOf(hashFile(f.name)), cfg.Redactor()
	}
	return f
}

// maxConfigProblem bounds what a worker's record says of the file, in bytes.
const maxConfigProblem = 200

// config is what the record of a worker says of the file.
func (f *destinationsFile) config() (version, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem != nil {
		problem = text.CutBytes(text.Line(f.secrets.Redact(f.problem.Error()), maxConfigProblem), maxConfigProblem)
	}
	return f.held, problem
}

// versionOf is a version of the file: enough to see that two differ.
func versionOf(hash []byte) string { return hex.EncodeToString(hash[:4]) }

// taken takes why what followFile has sent could not be taken up; nil if it was.
func (f *destinationsFile) taken(problem error) {
	f.mu.Lock()
	f.sent, f.untaken = false, problem != nil
	f.mu.Unlock()
	f.changed(problem)
}

// changed takes what is wrong with the file, which is shown until it is right; nil if nothing is.
func (f *destinationsFile) changed(problem error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	again := problem != nil && f.problem != nil && problem.Error() == f.problem.Error()
	if f.problem = problem; problem == nil {
		f.held = f.read
	}
	if again {
		return
	}
	if problem != nil {
		f.valid.Set(0)
		f.log.Error("the destinations file cannot be taken up; the settings before hold", FileAttr, f.name, "error", problem)
		return
	}
	f.valid.Set(1)
	f.log.Info("the destinations file was taken up", FileAttr, f.name)
}

// warning is for those who may not know details: "" if there is none.
func (f *destinationsFile) warning() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.problem == nil {
		return ""
	}
	return "the destinations file cannot be taken up, and the settings before hold; see the log, or tidegate config check"
}

type loadConfig func(environ []string) (*config.Config, []config.Warning, error)

// followFile sends the configuration after each change of the destinations file that is valid, until stop is run. The
// receiver reports the result by file.taken. After a failure followFile tries again, since another file or Redis may
// have been the cause. Without a file it returns nil.
func followFile(ctx context.Context, cfg *config.Config, load loadConfig, environ []string, file *destinationsFile, stop *teardown) <-chan *config.Config {
	path := cfg.DestinationsFile
	if path == "" {
		return nil
	}
	out := make(chan *config.Config)
	stop.background(ctx, func(ctx context.Context) {
		tick := time.Tick(fileEvery)
		var last []byte // none: it may have changed since cfg was read
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			file.mu.Lock()
			wrong, sent, untaken := file.problem != nil, file.sent, file.untaken
			file.mu.Unlock()
			if sent {
				continue
			}
			hash := hashFile(path)
			same := bytes.Equal(hash, last)
			if same && !wrong {
				continue
			}
			last = hash
			file.mu.Lock()
			file.read = versionOf(hash)
			file.mu.Unlock()
			next, warnings, err := load(environ)
			if err == nil {
				err = next.RequireDestinations()
			}
			if err != nil {
				file.changed(err)
				continue
			}
			if !untaken && reflect.DeepEqual(next.Destinations, cfg.Destinations) {
				if wrong {
					file.changed(nil)
				} else {
					file.mu.Lock()
					file.held = file.read // another comment
					file.mu.Unlock()
				}
				continue
			}
			next.ShareRedactor(cfg)
			for _, w := range warnings {
				if !same {
					file.log.WarnContext(ctx, "configuration", "variable", w.Variable, "problem", w.Message)
				}
			}
			file.mu.Lock()
			file.sent = true
			file.mu.Unlock()
			select {
			case out <- next:
				cfg = next
			case <-ctx.Done():
				return
			}
		}
	})
	return out
}

// hashFile returns a hash of a file's content; one of its error if it cannot be read.
func hashFile(path string) []byte {
	content, _, err := text.ReadFile(path, config.MaxDestinationsFile)
	if err != nil {
		content = []byte(err.Error())
	}
	sum := sha256.Sum256(content)
	return sum[:]
}
