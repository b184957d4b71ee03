package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/tidegate/tidegate/internal/access"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/internal/webserver"
)

// unused reports whether nothing is in use.
func (m *memory) unused() bool { return free(m.all, m.most) }

// free reports whether n bytes are free.
func free(of *semaphore.Weighted, n int64) bool {
	if !of.TryAcquire(n) {
		return false
	}
	of.Release(n)
	return true
}

func TestMemoryIsShared(t *testing.T) {
	t.Parallel()
	m := newMemory(100)
	as := func(name string) *account {
		return m.account(access.With(t.Context(), access.Identity{Name: name}))
	}
	ann, again, bob, eve := as("ann"), as("ann"), as("bob"), as("eve")
	for i, step := range []struct {
		who  *account
		n    int64
		want bool
	}{{ann, 30, true}, {again, 21, false}, {again, 20, true}, {bob, 40, true}, {eve, 11, false}, {eve, 10, true}, {bob, 1, false}} {
		if got := step.who.try(step.n); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	ann.release(10)
	ann.close()
	if !bob.try(10) || bob.try(1) {
		t.Error("what was given back is not there for others, up to their half")
	}
	for _, a := range []*account{again, bob, eve} {
		a.close()
	}
	if !m.unused() {
		t.Error("not all was given back")
	}
}

func TestMemoryIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(100)
		ann, again := m.account(t.Context()), m.account(t.Context())
		ann.try(50)
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if !again.wait(t.Context(), 10) {
					t.Error("what was given back did not reach those who wait")
				}
			})
		}
		synctest.Wait()
		ann.release(20)
		synctest.Wait()
		ann.release(30)
		waiting.Wait()
		began := time.Now()
		if again.wait(t.Context(), 1) || time.Since(began) != memoryPatience {
			t.Errorf("more than there is came after %v", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if again.wait(ctx, 1) {
			t.Error("more than there is came to one who has left")
		}
	})
}

// Many who send their lines slowly keep nobody from enqueuing, not even of their name.
func TestManySlowStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t, setup{server: webserver.Limits{Stall: time.Minute}}) // the machine may be busy
	const many = 100
	outs := make([]*io.PipeWriter, many)
	var slow sync.WaitGroup
	var last sync.WaitGroup
	for i := range outs {
		in, out := io.Pipe()
		outs[i] = out
		last.Go(func() {
			_, _ = io.WriteString(out, "\n"+`{"destination":"shop","payload":1}`+"\n")
		})
		slow.Go(func() {
			if answer := b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", ndjsonType); answer.status != http.StatusCreated {
				t.Errorf("a slow one: %d %s", answer.status, answer.body)
			}
		})
	}
	redistest.Eventually(t, "the first lines of all", func() bool { return b.total(t) == many })
	b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "Content-Type", ndjsonType).ok(t, http.StatusCreated)
	b.post(t, "/v1/jobs", jsonOf(10_000, `{"destination":"shop","payload":1,"key":"`+strings.Repeat("k", 100)+`"}`)).ok(t, http.StatusCreated)
	last.Wait()
	for _, out := range outs {
		_ = out.Close()
	}
	slow.Wait()
}

// A stream for whose lines there is little memory goes on in small chunks, and gives
// all of it back.
func TestLinesInLittleMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client})
	a.memory = newMemory(2 * (500 << 10)) // half of it for one name
	few := &bench{url: serve(t, as(a))}
	line := `{"destination":"shop","payload":"` + strings.Repeat("x", 500) + `"}` + "\n"
	long := `{"destination":"shop","payload":"` + strings.Repeat("x", 70<<10) + `"}` + "\n"
	for name, body := range map[string]string{
		"short":                  strings.Repeat(line, 3000),
		"refused":                strings.Repeat("{}\n", 3000),
		"long":                   strings.Repeat(long[:20<<10]+"\"}\n", 50),
		"longer than the buffer": long + strings.Repeat(line, 10) + strings.Repeat(long, 20),
	} {
		got := few.post(t, "/v1/jobs", body, "Content-Type", ndjsonType, "Accept", ndjsonType)
		n := strings.Count(body, "\n")
		if got.status != http.StatusOK || strings.Count(got.body, "\n") != n+1 {
			t.Errorf("%s: %d, %d lines of %d: %.300s", name, got.status, strings.Count(got.body, "\n"), n, got.body)
		}
	}
	redistest.Eventually(t, "the memory", a.memory.unused)
}

// An array of any size that is accepted finds room in a half of the memory.
func TestTheLargestArrayFindsRoom(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	body := `[{"destination":"shop"}` + strings.Repeat(" ", mostArrayBytes-24) + `]`
	for how, reader := range map[string]io.Reader{"with its length": strings.NewReader(body), "without": io.MultiReader(strings.NewReader(body))} {
		if p := b.send(t, http.MethodPost, "/v1/jobs", reader).problem(t, http.StatusUnprocessableEntity); p.Progress == nil || p.Rejected != 1 {
			t.Errorf("%s: %s", how, p.Detail)
		}
	}
	if most := int64(mostArrayBytes + 1 + mostItems*jobMemory); most > mostBodyBytes/2 {
		t.Errorf("the largest array takes %d bytes, for which there is no room", most)
	}
}
