package api

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// unknownParents is a job with n parents that do not exist.
func unknownParents(n int) string {
	var ids strings.Builder
	for i := range n {
		fmt.Fprintf(&ids, `,"p%d"`, i)
	}
	return `{"destination":"shop","payload":1,"after":[` + ids.String()[1:] + `]}`
}

// A token whose streams bring one bad job after the other, and stay open, leaves the
// memory of others alone.
func TestBadLinesLeaveOthersTheirMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := build(Options{Redis: b.rdb, Client: b.client})
	a.bodies = newRoom(8 * chunkMemory) // half of it for one name
	b.url = serve(t, as(a))
	const streams, bad = 4, 40
	body := strings.Repeat(unknownParents(1000)+"\n", bad)
	outs := make([]*io.PipeWriter, streams)
	var hostile sync.WaitGroup
	for i := range outs {
		in, out := io.Pipe()
		outs[i] = out
		hostile.Go(func() {
			_, _ = io.WriteString(out, fmt.Sprintf(`%s{"id":"end-%d","destination":"shop","payload":1}`+"\n", body, i))
		})
		hostile.Go(func() {
			answer := b.send(t, http.MethodPost, "/v1/jobs", in, "Content-Type", ndjsonType, "As", "enqueue", "Name", "eve")
			if got := decode[Enqueued](t, answer); answer.status != http.StatusCreated || got.Accepted != 1 || got.Rejected != bad || len(answer.body) > 1<<20 {
				t.Errorf("%d, accepted %d, rejected %d, %d bytes of answer", answer.status, got.Accepted, got.Rejected, len(answer.body))
			}
		})
	}
	for i := range streams {
		redistest.Eventually(t, "a hostile stream's last job", func() bool {
			_, err := b.client.Get(t.Context(), fmt.Sprint("end-", i))
			return err == nil
		})
	}
	refused := 0
	for range 45 {
		for _, out := range outs {
			_, _ = io.WriteString(out, "\n")
		}
		if b.post(t, "/v1/jobs", `{"destination":"shop","payload":1}`, "As", "enqueue", "Name", "bob").status != http.StatusCreated {
			refused++
		}
	}
	if refused > 0 {
		t.Errorf("%d of 45 requests of another token were refused", refused)
	}
	for _, out := range outs {
		_ = out.Close()
	}
	hostile.Wait()
}

// hostileJobs have many mistakes for their size.
func hostileJobs() map[string]string {
	const size = 315_000
	repeat := func(begin, part, end string) string {
		return begin + strings.TrimSuffix(strings.Repeat(part, (size-len(begin)-len(end))/len(part)), ",") + end
	}
	var headers, fields strings.Builder
	for i := range size / 14 {
		fmt.Fprintf(&headers, `,"é%d":""`, i)
		fmt.Fprintf(&fields, `,"f%d":1`, i)
	}
	return map[string]string{
		"retry_on":        repeat(`{"destination":"shop","payload":1,"retry":{"max_retries":1,"retry_on":[`, `"",`, `]}}`),
		"twice":           `{"destination":"shop","payload":1` + strings.Repeat(`,"retry":{"max_retries":1,"retry_on":["",""]}`, size/50) + `}`,
		"a long word":     repeat(`{"destination":"shop","payload":1,"retry":{"retry_on":["`, `x`, `"]}}`),
		"a long number":   repeat(`{"destination":"shop","payload":1,"retry":{"max_retries":1.`, `1`, `}}`),
		"a long ttl":      repeat(`{"destination":"shop","payload":1,"ttl":"`, `x`, `"}`),
		"header names":    `{"destination":"shop","payload":1,"request":{"headers":{` + headers.String()[1:] + `}}}`,
		"a header's name": repeat(`{"destination":"shop","payload":1,"request":{"headers":{"`, `é`, `":""}}}`),
		"headers again":   `{"destination":"shop","payload":1,"request":{"headers":{"a":"1"` + strings.Repeat(`},"headers":{"é":""`, size/25) + `}}}`,
		"parents":         repeat(`{"destination":"shop","payload":1,"after":[`, `"",`, `]}`),
		"unknown parents": unknownParents(1000),
		"fields":          `{"destination":"shop","payload":1` + fields.String() + `}`,
		"a long field":    repeat(`{"destination":"shop","payload":1,"`, `x`, `":1}`),
		"an unknown one":  `{"destination":"blog","payload":1}`,
	}
}

// What is wrong with a job is told in an answer that is short however much there is.
func TestErrorsOfAJobAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, job := range hostileJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := b.post(t, "/v1/jobs", job)
			if p := answer.problem(t, http.StatusUnprocessableEntity); len(p.Errors) == 0 || len(p.Errors) > 51 || len(answer.body) > 16<<10 {
				t.Errorf("a job of %d bytes is answered with %d errors, %d bytes: %.300s", len(job), len(p.Errors), len(answer.body), answer.body)
			}
		})
	}
}

// The memory that many such jobs take, and the answer to them, are bounded.
//
//nolint:paralleltest // it measures the memory of the process
func TestHostileJobsTakeLittleMemory(t *testing.T) {
	redistest.Slow(t)
	b := newBench(t)
	for name, job := range hostileJobs() {
		many := 4
		if name == "retry_on" {
			many = 24 // 7.5 MB
		}
		for kind, body := range map[string]string{jsonType: jsonOf(many, job), ndjsonType: strings.Repeat(job+"\n", many)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			answer := b.post(t, "/v1/jobs", body, "Content-Type", kind)
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s, %s: %d bytes, %d of answer, %d allocated", name, kind, len(body), len(answer.body), took)
			if p := answer.problem(t, http.StatusUnprocessableEntity); p.Progress == nil || p.Rejected != many || len(answer.body) > many<<14 {
				t.Errorf("%s, %s: %d bytes are answered with %d, %+v", name, kind, len(body), len(answer.body), p.Progress)
			}
			if most := uint64(8*len(body) + 16<<20); took > most {
				t.Errorf("%s, %s: %d bytes of jobs took %d, at most %d are expected", name, kind, len(body), took, most)
			}
		}
	}
}

// An array of many small bad jobs is answered with a text for each, and no more.
func TestErrorsOfManyAreBounded(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	b := newBench(t)
	const job = `{"retry":{"max_retries":0,"initial_delay_secs":-1,"max_delay_secs":-1},"x":1,"y":1,"z":1}`
	good := `{"destination":"shop","payload":1}`
	for how, row := range map[string]struct {
		body    string
		headers []string
	}{
		"array":   {jsonOf(1_500, job+","+good), nil},
		"lines":   {strings.Repeat(job+"\n", 3_000) + good, []string{"Content-Type", ndjsonType}},
		"results": {strings.Repeat(job+"\n", 3_000) + good, []string{"Content-Type", ndjsonType, "Accept", ndjsonType}},
	} {
		answer := b.post(t, "/v1/jobs", row.body, row.headers...)
		if answer.status/100 != 2 || len(answer.body) > 6*len(row.body) {
			t.Errorf("%s: %d, %d bytes are answered with %d: %.300s", how, answer.status, len(row.body), len(answer.body), answer.body)
		}
		t.Logf("%s: %d bytes are answered with %d", how, len(row.body), len(answer.body))
	}
}

// What is wrong with a query or an action is answered with 50 errors at most.
func TestErrorsOfRequestsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var params, empty strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&params, "&p%d=1", i)
		fmt.Fprintf(&empty, "&p%d=", i)
	}
	for name, answer := range map[string]got{
		"parameters":       b.get(t, "/v1/jobs?"+params.String()[1:]),
		"empty parameters": b.get(t, "/v1/jobs?"+empty.String()[1:]),
		"statuses":         b.get(t, "/v1/jobs?status="+strings.Repeat("x,", 10_000)+"x"),
		"an action":        b.post(t, "/v1/jobs/cancel", `{"status":["x"`+strings.Repeat(`,"x"`, 10_000)+`]}`),
	} {
		if p := answer.problem(t, http.StatusUnprocessableEntity); len(p.Errors) == 0 || len(p.Errors) > 50 || len(answer.body) > 16<<10 {
			t.Errorf("%s: %d errors, %d bytes: %.300s", name, len(p.Errors), len(answer.body), answer.body)
		}
	}
}
