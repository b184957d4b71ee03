// Package rig is what the commands under internal/bench share: servers as tests
// have them, medians, and the sections of the documentation that they write.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Do calls f with a value that stands in for a test, so that a command can use what
// is made for tests, such as redistest. What f registers with Cleanup is done when
// f has ended, also by Fatal, Skip or a panic. Methods that neither redistest nor
// the commands need panic.
//
// f must not call FailNow and its kin from other goroutines than its own, as in
// tests.
func Do(ctx context.Context, name string, f func(t testing.TB) error) (err error) {
	t := &standIn{ctx: ctx, name: name}
	defer func() {
		err = errors.Join(err, t.clean())
	}()
	defer func() {
		if v := recover(); v == ended(t) {
			err = errors.Join(t.errs...)
		} else if v != nil {
			panic(v)
		}
	}()
	err = f(t)
	return errors.Join(err, errors.Join(t.errs...))
}

// standIn is the part of testing.TB that the commands need. It is used by one
// goroutine.
type standIn struct {
	testing.TB // nil: the other methods panic

	ctx      context.Context //nolint:containedctx // as testing.T has it
	name     string
	cleanups []func()
	errs     []error
}

// ended is what Fatal and Skip panic with.
type ended *standIn

func (t *standIn) Context() context.Context          { return t.ctx }
func (t *standIn) Name() string                      { return t.name }
func (t *standIn) Helper()                           {}
func (t *standIn) Failed() bool                      { return len(t.errs) > 0 }
func (t *standIn) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *standIn) Log(args ...any)                   { fmt.Fprintln(os.Stderr, args...) }
func (t *standIn) Logf(format string, args ...any)   { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (t *standIn) Error(args ...any)                 { t.fail(fmt.Sprint(args...)) }
func (t *standIn) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }

func (t *standIn) Fatal(args ...any) {
	t.fail(fmt.Sprint(args...))
	panic(ended(t))
}

func (t *standIn) Fatalf(format string, args ...any) {
	t.fail(fmt.Sprintf(format, args...))
	panic(ended(t))
}

// Skip fails: a command that cannot do what it is for has failed.
func (t *standIn) Skip(args ...any) { t.Fatal(args...) }

// TempDir returns a directory that is removed in the end.
func (t *standIn) TempDir() string {
	dir, err := os.MkdirTemp("", "tidegate-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (t *standIn) fail(text string) {
	t.errs = append(t.errs, fmt.Errorf("%s: %s", t.name, text))
}

// clean runs what was registered, the last first, and returns what failed in it.
func (t *standIn) clean() error {
	before := len(t.errs)
	for len(t.cleanups) > 0 {
		last := len(t.cleanups) - 1
		f := t.cleanups[last]
		t.cleanups = t.cleanups[:last]
		f()
	}
	return errors.Join(t.errs[before:]...)
}

// Median returns the median of values that it does not change: the upper one of the
// two in the middle if their number is even. There must be one.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
