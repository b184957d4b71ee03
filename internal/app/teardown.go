package app

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// teardown remembers how to take down what was built, so that a start that fails
// halfway cleans up too.
type teardown struct{ steps []func() error }

// add registers the step that undoes what was just built.
func (t *teardown) add(step func() error) { t.steps = append(t.steps, step) }

// background has work done until it is taken down, with a context that ends then and
// not with ctx.
func (t *teardown) background(ctx context.Context, work func(context.Context)) {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { work(working) })
	t.add(func() error {
		cancel()
		done.Wait()
		return nil
	})
}

// run takes down the last built first and returns all errors together.
func (t *teardown) run() error {
	var errs []error
	for _, step := range slices.Backward(t.steps) {
		errs = append(errs, step())
	}
	t.steps = nil
	return errors.Join(errs...)
}
