package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
)

// clock is set by hand.
type clock struct{ t time.Time }

func (h *clock) now() time.Time { return h.t }

type notFoundError struct{}

func (notFoundError) Error() string { return "not found" }
func (notFoundError) Lasting()      {}

// A value is good for a second, and so is an error; after an error the older value is served with its time, but not
// in place of a result such as "not found".
func TestCache(t *testing.T) {
	t.Parallel()
	clock := &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	began := clock.t
	c := NewCache(clock.now)
	down := errors.New("redis is away")
	value, fail, reads := 1, error(nil), 0
	for i, step := range []struct {
		after time.Duration
		set   func()
		want  int
		since time.Time
		reads int
	}{
		{0, func() { fail = down }, 0, time.Time{}, 1},
		{999 * time.Millisecond, func() { fail = nil }, 0, time.Time{}, 1},
		{time.Millisecond, func() {}, 1, time.Time{}, 2},
		{999 * time.Millisecond, func() { value = 2 }, 1, time.Time{}, 2},
		{time.Millisecond, func() {}, 2, time.Time{}, 3},
		{0, func() { value = 3; c.Forget() }, 3, time.Time{}, 4},
		{time.Second, func() { fail = down }, 3, began.Add(2 * time.Second), 5},
		{0, func() { c.Forget(); c.Forget() }, 3, began.Add(2 * time.Second), 6},
		{time.Minute, func() { fail = notFoundError{} }, 0, time.Time{}, 7},
	} {
		clock.t = clock.t.Add(step.after)
		step.set()
		a, err := Read(t.Context(), c, "page", func(context.Context) (int, error) {
			reads++
			return value, fail
		})
		if a.Value != step.want || !a.Since.Equal(step.since) || (err != nil) != (step.want == 0) || reads != step.reads {
			t.Errorf("step %d: %+v, %v after %d reads, want %d since %v after %d", i, a, err, reads, step.want, step.since, step.reads)
		}
	}
}

// A reader that comes after an act is not given what was read before it, though it is still being read.
func TestCacheForgets(t *testing.T) {
	t.Parallel()
	c := NewCache(nil)
	reading, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan int)
	go func() {
		a, _ := Read(t.Context(), c, "page", func(context.Context) (int, error) {
			close(reading)
			<-goOn
			return 1, nil
		})
		first <- a.Value
	}()
	<-reading
	c.Forget()
	two := func(context.Context) (int, error) { return 2, nil }
	a, err := Read(t.Context(), c, "page", two)
	if a.Value != 2 || err != nil {
		t.Errorf("%+v, %v, want 2", a, err)
	}
	close(goOn)
	if got := <-first; got != 1 {
		t.Errorf("the first reader got %d", got)
	}
	if a, err = Read(t.Context(), c, "page", two); a.Value != 2 || err != nil {
		t.Errorf("%+v, %v, want 2 though 1 came later", a, err)
	}
}

// A caller that has enqueued is not given what was read before; others are, and share it.
func TestCacheOfACallerThatWrites(t *testing.T) {
	t.Parallel()
	clock := &clock{time.Now()}
	c := NewCache(clock.now)
	reads := 0
	read := func(name string) int {
		t.Helper()
		ctx := access.With(t.Context(), access.Identity{Name: name})
		clock.t = clock.t.Add(time.Millisecond)
		a, err := Read(ctx, c, "stats", func(context.Context) (int, error) {
			reads++
			return reads, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return a.Value
	}
	for i, step := range []struct {
		name  string
		write bool
		want  int
	}{{"ann", false, 1}, {"ben", true, 2}, {"ben", false, 2}, {"ann", false, 2}, {"ann", true, 3}, {"ben", false, 3}} {
		if step.write {
			clock.t = clock.t.Add(time.Millisecond)
			c.Wrote(access.With(t.Context(), access.Identity{Name: step.name}))
		}
		if got := read(step.name); got != step.want {
			t.Errorf("step %d: %s was given read %d, want %d", i, step.name, got, step.want)
		}
	}
}

// The cache keeps at most mostCached values, however many names are read.
func TestCacheBounded(t *testing.T) {
	t.Parallel()
	c := NewCache(nil)
	for i := range 3 * mostCached {
		if _, err := Read(t.Context(), c, fmt.Sprint(i), func(context.Context) (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.kept) != mostCached {
		t.Errorf("%d are kept, want %d", len(c.kept), mostCached)
	}
}

// A reader that leaves does not take the value away from the others.
func TestCacheReaderLeaves(t *testing.T) {
	t.Parallel()
	c := NewCache(nil)
	ctx, cancel := context.WithCancel(t.Context())
	goOn := make(chan struct{})
	f := func(ctx context.Context) (int, error) {
		<-goOn
		return 1, ctx.Err()
	}
	left := make(chan error)
	go func() {
		_, err := Read(ctx, c, "page", f)
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the reader that left got %v", err)
	}
	close(goOn)
	if a, err := Read(t.Context(), c, "page", f); a.Value != 1 || err != nil {
		t.Errorf("%+v, %v, want 1", a, err)
	}
}
