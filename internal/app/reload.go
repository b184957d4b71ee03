package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/tidegate/tidegate/internal/config"
)

// fileEvery is the interval at which the destinations file is read. Reading it finds each change, also
// the swap of a symbolic link by which the kubelet updates a ConfigMap.
const fileEvery = time.Second

// followFile sends the configuration after each change of the destinations file that is valid,
// until stop is run. changed gets what is wrong with the others, and nil for one that is sent.
// Without a file it returns nil.
func followFile(ctx context.Context, cfg *config.Config, environ []string, log *slog.Logger, changed func(error), stop *teardown) <-chan *config.Config {
	path := cfg.DestinationsFile
	if path == "" {
		return nil
	}
	out := make(chan *config.Config)
	stop.background(ctx, func(ctx context.Context) {
		tick := time.NewTicker(fileEvery)
		defer tick.Stop()
		var last []byte // none: it may have changed since cfg was read
		wrong := false
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			hash := hashFile(path)
			if bytes.Equal(hash, last) {
				continue
			}
			last = hash
			next, warnings, err := config.Load(environ)
			if err == nil {
				err = next.RequireDestinations()
			}
			if err != nil {
				wrong = true
				changed(err)
				continue
			}
			if reflect.DeepEqual(next.Destinations, cfg.Destinations) {
				if wrong {
					changed(nil)
				}
				wrong = false
				continue
			}
			for _, w := range warnings {
				log.WarnContext(ctx, "configuration", "variable", w.Variable, "problem", w.Message)
			}
			next.ShareRedactor(cfg)
			select {
			case out <- next:
				cfg, wrong = next, false
				changed(nil)
			case <-ctx.Done():
				return
			}
		}
	})
	return out
}

// hashFile returns a hash of a file's content; one of its error if it cannot be read.
func hashFile(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		content = []byte(err.Error())
	}
	sum := sha256.Sum256(content)
	return sum[:]
}
