package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// hand is a clock that is set by hand.
type hand struct{ t time.Time }

func (h *hand) now() time.Time { return h.t }

// What was read is good for a second, also that it could not be; after a failure the last
// is shown, with its time, and an answer such as "not found" is none.
func TestCache(t *testing.T) {
	t.Parallel()
	clock := &hand{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	began := clock.t
	c := newCache(clock.now)
	down := errors.New("redis is away")
	value, fail, reads := 1, error(nil), 0
	look := func() (answer[int], error) {
		return read(t.Context(), c, "page", func(context.Context) (int, error) {
			reads++
			return value, fail
		})
	}
	for i, step := range []struct {
		after time.Duration
		set   func()
		want  int
		since time.Time
		err   error
		reads int
	}{
		{0, func() { fail = down }, 0, time.Time{}, down, 1},
		{999 * time.Millisecond, func() { fail = nil }, 0, time.Time{}, down, 1},
		{time.Millisecond, func() {}, 1, time.Time{}, nil, 2},
		{999 * time.Millisecond, func() { value = 2 }, 1, time.Time{}, nil, 2},
		{time.Millisecond, func() {}, 2, time.Time{}, nil, 3},
		{0, func() { value = 3; c.forget() }, 3, time.Time{}, nil, 4},
		{time.Second, func() { fail = down }, 3, began.Add(2 * time.Second), nil, 5},
		{0, func() { c.forget(); c.forget() }, 3, began.Add(2 * time.Second), nil, 6},
		{time.Minute, func() { fail = &problem{status: http.StatusNotFound} }, 0, time.Time{}, fail, 7},
	} {
		clock.t = clock.t.Add(step.after)
		step.set()
		a, err := look()
		if a.value != step.want || !a.since.Equal(step.since) || (err != nil) != (step.want == 0) || reads != step.reads {
			t.Errorf("step %d: %+v, %v after %d reads, want %d since %v after %d", i, a, err, reads, step.want, step.since, step.reads)
		}
	}
}

// Who comes after something has happened is not given what was read before it, though it
// is still being read.
func TestCacheForgets(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	reading, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan int)
	go func() {
		a, _ := read(t.Context(), c, "page", func(context.Context) (int, error) {
			close(reading)
			<-goOn
			return 1, nil
		})
		first <- a.value
	}()
	<-reading
	c.forget()
	two := func(context.Context) (int, error) { return 2, nil }
	a, err := read(t.Context(), c, "page", two)
	if a.value != 2 || err != nil {
		t.Errorf("%+v, %v, want 2", a, err)
	}
	close(goOn)
	if got := <-first; got != 1 {
		t.Errorf("the first reader got %d", got)
	}
	if a, err = read(t.Context(), c, "page", two); a.value != 2 || err != nil {
		t.Errorf("%+v, %v, want 2 though 1 came later", a, err)
	}
}

// However many pages are looked at, so many are remembered.
func TestCacheBounded(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	for i := range 3 * mostKept {
		if _, err := read(t.Context(), c, fmt.Sprint(i), func(context.Context) (int, error) { return i, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.kept) != mostKept {
		t.Errorf("%d are kept, want %d", len(c.kept), mostKept)
	}
}

// A reader who leaves does not take the answer away from the others.
func TestCacheReaderLeaves(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	goOn := make(chan struct{})
	f := func(ctx context.Context) (int, error) {
		<-goOn
		return 1, ctx.Err()
	}
	left := make(chan error)
	go func() {
		_, err := read(ctx, c, "page", f)
		left <- err
	}()
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(goOn)
	if a, err := read(t.Context(), c, "page", f); a.value != 1 || err != nil {
		t.Errorf("%+v, %v, want 1", a, err)
	}
}
