package api

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/serve/webserver"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A name takes half of the room at most; what is given back reaches those that wait, and not for ever.
func TestRoomIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(100)
		enter := func(name string, n int64) func() {
			return r.enter(access.With(t.Context(), access.Identity{Name: name}), n)
		}
		ann := enter("ann", 30)
		began := time.Now()
		if enter("ann", 21) != nil || time.Since(began) != roomPatience {
			t.Errorf("ann has more than half of the room after %v", time.Since(began))
		}
		bob := enter("bob", 1000) // more than half is half
		if bob == nil || enter("eve", 21) != nil {
			t.Error("bob has no room, or eve has what is not there")
		}
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if enter("eve", 10) == nil {
					t.Error("what was given back did not reach those that wait")
				}
			})
		}
		synctest.Wait()
		ann()
		waiting.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r.enter(ctx, 1) != nil {
			t.Error("there is room for a caller that has left")
		}
		bob()
		if r.all.TryAcquire(51) || !r.all.TryAcquire(50) {
			t.Error("not all was given back")
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

// Senders that pause hold little: neither streams in the middle of a line, nor small jobs where payloads may be large,
// keep others of their name from enqueuing.
func TestSlowSendersHoldLittle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client, Limits: jobs.Limits{MaxPayloadBytes: 16 << 20}})
	a.bodies.patience = time.Second
	b.url = serve(t, as(a))
	const many = 40
	job := `{"destination":"shop","payload":1}`
	var outs []*io.PipeWriter
	var slow sync.WaitGroup
	for i := range many {
		in, out := io.Pipe()
		outs = append(outs, out)
		kind, begin := jsonType, job[:9]
		if i%2 == 0 {
			kind, begin = ndjsonType, job+"\n"+job[:9]
		}
		slow.Go(func() {
			if answer := b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", kind); answer.status != http.StatusCreated {
				t.Errorf("a slow one: %d %s", answer.status, answer.body)
			}
		})
		slow.Go(func() { _, _ = io.WriteString(out, begin) })
	}
	redistest.Eventually(t, "the room of all", func() bool {
		rest := a.bodies.most - many*(64<<10) + 1
		free := a.bodies.all.TryAcquire(rest)
		if free {
			a.bodies.all.Release(rest)
		}
		return !free
	})
	b.post(t, "/v1/jobs", job).ok(t, http.StatusCreated)
	for _, out := range outs {
		slow.Go(func() {
			_, _ = io.WriteString(out, job[9:])
			_ = out.Close()
		})
	}
	slow.Wait()
}

// The memory of long lines that are not whole yet is bounded too.
func TestLongLinesTakeRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client})
	a.bodies = newRoom(1 << 20) // half of it for one name: two lines
	a.bodies.patience = 100 * time.Millisecond
	b.url = serve(t, as(a))
	const many = 8
	var refused atomic.Int32
	var outs []*io.PipeWriter
	var slow sync.WaitGroup
	for range many {
		in, out := io.Pipe()
		outs = append(outs, out)
		slow.Go(func() {
			if b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", ndjsonType).status == http.StatusServiceUnavailable {
				refused.Add(1)
			}
		})
		slow.Go(func() { _, _ = io.WriteString(out, strings.Repeat("x", 250<<10)) })
	}
	redistest.Eventually(t, "the refusal of all for which there is no room", func() bool { return refused.Load() >= many-2 })
	for _, out := range outs {
		_ = out.Close()
	}
	slow.Wait()
}

// Streams and arrays that wait for room go on, and give all of it back.
func TestEnqueuesInLittleRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client})
	a.bodies = newRoom(2 * chunkMemory) // half of it for one name: one chunk
	few := &bench{url: serve(t, as(a))}
	job := `{"destination":"shop","payload":"` + strings.Repeat("x", 500) + `"}`
	long := `{"destination":"shop","payload":"` + strings.Repeat("x", 70<<10) + `"}` + "\n"
	for name, body := range map[string]string{
		"short":                  strings.Repeat(job+"\n", 5000),
		"refused":                strings.Repeat("{}\n", 5000),
		"longer than the buffer": long + strings.Repeat(job+"\n", 10) + strings.Repeat(long, 50),
	} {
		got := few.post(t, "/v1/jobs", body, "Content-Type", ndjsonType, "Accept", ndjsonType)
		n := strings.Count(body, "\n")
		if got.status != http.StatusOK || strings.Count(got.body, "\n") != n+1 {
			t.Errorf("%s: %d, %d lines of %d: %.300s", name, got.status, strings.Count(got.body, "\n"), n, got.body)
		}
	}
	few.post(t, "/v1/jobs", jsonOf(2000, job)).ok(t, http.StatusCreated)
	redistest.Eventually(t, "the room", func() bool {
		ok := a.bodies.all.TryAcquire(a.bodies.most)
		if ok {
			a.bodies.all.Release(a.bodies.most)
		}
		return ok
	})
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
}
