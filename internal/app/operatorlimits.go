package app

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/config"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// operatorLimits are the limits that operators have set in Redis, one more layer above the configuration.
type operatorLimits struct {
	rdb       redis.UniversalClient
	namespace store.Namespace
	log       *slog.Logger

	rates map[string]string // by name, as last read
}

// AboveConfig returns a function that puts the limits that operators have set in place of a configuration's own.
func AboveConfig(ctx context.Context, rdb redis.UniversalClient, namespace string) func(*config.Config) *config.Config {
	o := &operatorLimits{rdb: rdb, namespace: store.Namespace(namespace)}
	o.read(ctx)
	return o.above
}

// operatorLimitsEvery is the interval at which they are read.
const operatorLimitsEvery = time.Second

// change is a configuration to apply, and where to send the result.
type change struct {
	cfg        *config.Config // with the limits of operators
	configured *config.Config // without
	taken      chan<- error
}

// read reads the operators' limits. While Redis is away, the limits of the last read hold.
func (o *operatorLimits) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*operatorLimitsEvery)
	defer cancel()
	found, err := o.namespace.Overrides(ctx, o.rdb)
	if err != nil {
		return // others log that Redis is away
	}
	o.rates = map[string]string{}
	for name, limit := range found {
		if _, err := parseOperatorRate(limit.Rate); err == nil { // else of a newer version
			o.rates[name] = limit.Rate
		}
	}
}

func parseOperatorRate(rate string) (breaker.Rates, error) {
	if rate == store.NoRate {
		return nil, nil
	}
	return breaker.ParseRates(rate) //nolint:wrapcheck // for a check alone
}

// above returns the configuration with the limits of operators in place of its own.
func (o *operatorLimits) above(cfg *config.Config) *config.Config {
	cfg.Redactor() // the copy has the same one
	out := *cfg
	out.Destinations = slices.Clone(cfg.Destinations)
	for i := range out.Destinations {
		d := &out.Destinations[i]
		if rate, set := o.rates[d.Name]; set {
			d.Rate, _ = parseOperatorRate(rate)
			d.OperatorRate = true
		}
		d.Limits = slices.Clone(d.Limits)
		for j := range d.Limits {
			if rate, set := o.rates[store.LimitField(d.Limits[j].Name)]; set {
				d.Limits[j].Rate, _ = parseOperatorRate(rate)
				d.Limits[j].OperatorRate = true
			}
		}
		d.Limits = slices.DeleteFunc(d.Limits, func(l config.LimitUse) bool { return len(l.Rate) == 0 && l.Concurrency == 0 })
	}
	return &out
}

// follow sends the configuration after each change of the file, and of the limits of operators, until stop is run.
func (o *operatorLimits) follow(ctx context.Context, cfg *config.Config, files <-chan *config.Config, file *destinationsFile, stop *teardown) <-chan change {
	out := make(chan change)
	stop.background(ctx, func(ctx context.Context) {
		tick := time.Tick(operatorLimitsEvery)
		held, problem := o.above(cfg), ""
		send := func(next *config.Config) error {
			taken, all := make(chan error, 1), o.above(next)
			select {
			case out <- change{all, next, taken}:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case err := <-taken:
				if err == nil {
					cfg, held = next, all
				}
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for {
			select {
			case <-ctx.Done():
				return
			case next := <-files:
				err := send(next)
				if ctx.Err() == nil {
					file.taken(err)
				}
			case <-tick:
				if o.read(ctx); reflect.DeepEqual(held.Destinations, o.above(cfg).Destinations) {
					continue
				}
				if err := send(cfg); err == nil {
					problem = ""
					o.log.InfoContext(ctx, "the limits that operators have set were taken up", "limits", o.rates)
				} else if ctx.Err() == nil && err.Error() != problem {
					problem = err.Error()
					o.log.ErrorContext(ctx, "the limits that operators have set cannot be taken up; those before hold", "error", err)
				}
			}
		}
	})
	return out
}
