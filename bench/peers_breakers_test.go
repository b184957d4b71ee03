package bench

import (
	"context"
	"errors"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/tidegate/tidegate/breaker"
)

// openFor is the cooldown of the peers' breakers.
const openFor = 5 * time.Minute

// guarded makes a call under a breaker.
type guarded func(ctx context.Context, call func() error) error

// peer is one way to guard a call.
type peer struct {
	name   string
	shared bool // by all processes, through Redis
	// start returns what each of n goroutines calls, and what ends it.
	start func(ctx context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error)
}

var errOpen = errors.New("the breaker is open")

func peers() []peer {
	return []peer{
		{"Tidegate `Allow` and `Report`", true, startTidegate},
		{"Tidegate `Allow` and `Report`, of a key", true, startTidegateKey},
		{"Tidegate `Do`", true, startTidegateDo},
		{"gobreaker 2.4 distributed `Execute`", true, startDistributed},
		{"naive: three Redis keys", true, startNaive},
		{"gobreaker 2.4 local `Execute`", false, startGobreaker},
		{"failsafe-go 0.9.8 `Run`", false, startFailsafe},
	}
}

// same returns one guarded call for n goroutines to share.
func same(g guarded, n int) []guarded {
	all := make([]guarded, n)
	for i := range all {
		all[i] = g
	}
	return all
}

func nothing() error { return nil }

func newTidegate(ctx context.Context, rdb redis.UniversalClient) (*breaker.Breaker, error) {
	return breaker.New(ctx, rdb, breaker.Options{Destination: destination, FailureThreshold: threshold, Cooldown: openFor})
}

// permits guards calls with the two steps of one of our breakers.
func permits(b *breaker.Breaker) guarded {
	return func(ctx context.Context, call func() error) error {
		permit, err := b.Allow(ctx)
		if err != nil {
			return err
		}
		if err := call(); err != nil {
			_, reported := permit.Report(ctx, breaker.Failure())
			return errors.Join(err, reported)
		}
		_, err = permit.Report(ctx, breaker.Success())
		return err
	}
}

func startTidegate(ctx context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error) {
	b, err := newTidegate(ctx, rdb)
	if err != nil {
		return nil, nil, err
	}
	return same(permits(b), n), b.Close, nil
}

func startTidegateKey(ctx context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error) {
	b, err := newTidegate(ctx, rdb)
	if err != nil {
		return nil, nil, err
	}
	return same(permits(b.Key("alice")), n), b.Close, nil
}

func startTidegateDo(ctx context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error) {
	b, err := newTidegate(ctx, rdb)
	if err != nil {
		return nil, nil, err
	}
	return same(func(ctx context.Context, call func() error) error {
		return b.Do(ctx, func(context.Context) error { return call() })
	}, n), b.Close, nil
}

func settings() gobreaker.Settings {
	return gobreaker.Settings{
		Name: destination, Timeout: openFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= threshold },
	}
}

// startDistributed gives each goroutine a breaker of its own, as processes have: one
// that is shared by goroutines loses its lock and fails.
func startDistributed(_ context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error) {
	all := make([]guarded, n)
	for i := range all {
		b, err := gobreaker.NewDistributedCircuitBreaker[struct{}](&sharedStore{rdb: rdb}, settings())
		if err != nil {
			return nil, nil, err
		}
		all[i] = func(_ context.Context, call func() error) error {
			_, err := b.Execute(func() (struct{}, error) { return struct{}{}, call() })
			return err
		}
	}
	return all, nothing, nil
}

func startNaive(_ context.Context, rdb redis.UniversalClient, n int) ([]guarded, func() error, error) {
	b := newNaive(rdb, "circuit-breaker", threshold, openFor)
	return same(func(ctx context.Context, call func() error) error {
		ok, _, err := b.Allow(ctx)
		if err != nil {
			return err
		}
		if !ok {
			return errOpen
		}
		if err := call(); err != nil {
			return err
		}
		return b.Succeeded(ctx)
	}, n), nothing, nil
}

func startGobreaker(_ context.Context, _ redis.UniversalClient, n int) ([]guarded, func() error, error) {
	b := gobreaker.NewCircuitBreaker[struct{}](settings())
	return same(func(_ context.Context, call func() error) error {
		_, err := b.Execute(func() (struct{}, error) { return struct{}{}, call() })
		return err
	}, n), nothing, nil
}

func startFailsafe(_ context.Context, _ redis.UniversalClient, n int) ([]guarded, func() error, error) {
	executor := failsafe.With(circuitbreaker.NewBuilder[any]().WithFailureThreshold(threshold).WithDelay(openFor).Build())
	return same(func(_ context.Context, call func() error) error { return executor.Run(call) }, n), nothing, nil
}
