package answers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/call/tokens"
	"github.com/tidegate/tidegate/internal/dest/answers"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// Bad files of rules and hostile answers take little time and memory. Both are bounded far above what
// they take, so that a busy machine does not matter.
func TestHostileInput(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	const mostTime, mostMemory = time.Minute, 256 << 20
	measure := func(name string, f func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		f()
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		memory := after.TotalAlloc - before.TotalAlloc
		t.Logf("%-45s %10s %8d KiB", name, took.Round(10*time.Microsecond), memory>>10)
		if took > mostTime || memory > mostMemory {
			t.Errorf("%s took %s and %d MiB", name, took, memory>>20)
		}
	}
	var aliases strings.Builder
	aliases.WriteString("a: &a [x]\n")
	for c := 'b'; c <= 'z'; c++ {
		aliases.WriteString(string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n")
	}
	for _, row := range []struct{ name, content string }{
		{"file: aliases of aliases", aliases.String() + "rules: *z\n"},
		{"file: 1 MiB of one rule", `- {when: "` + strings.Repeat("a", 1<<20-20) + `", then: ok}`},
		{"file: lists 500,000 deep", strings.Repeat("[", 500_000)},
		{"file: 30,000 rules", strings.Repeat("- {when: 'true', then: ok}\n", 30_000)},
		{"file: 200 large patterns", strings.Repeat("- {when: body matches '"+strings.Repeat(".{1000}", 500)+"', then: ok}\n", 200)},
		{"file: 200 deep expressions", strings.Repeat("- {when: '"+strings.Repeat("(", 4000)+"', then: ok}\n", 200)},
	} {
		measure(row.name, func() {
			_, err := answers.Parse([]byte(row.content))
			if problems, ok := errors.AsType[tokens.Errors](err); !ok || len(problems) == 0 {
				t.Errorf("%s: %v", row.name, err)
			}
		})
	}
	rules := parse(t, slack+graphQL[strings.Index(graphQL, "- when"):]+`
- when: any(body, .a == 1) && all(body, .b != 2) && count(body, .c == 3) > 5
  then: fail
- when: body matches "^(a+)+(a+)+$"
  then: fail
- when: body matches "a.{70}b.{70}c$"
  then: fail
- when: status == 400
  then: fail
  reason: "{{ body }}"
`)
	const most = httpdest.MaxRulesBody
	fill := func(before, middle, after string) string {
		return before + strings.Repeat(middle, (most-len(before)-len(after))/len(middle)) + after
	}
	for _, row := range []struct{ name, body string }{
		{"answer: JSON with one long text", fill(`{"ok":false,"error":"`, "x", `"}`)},
		{"answer: JSON with 32,000 numbers", "[" + strings.Repeat("1,", 32_000) + "1]"},
		{"answer: JSON with 10,000 objects", "[" + strings.Repeat(`{"a":1},`, 10_000) + "{}]"},
		{"answer: JSON with 100,000 values", fill("[", "1,", "1]")},
		{"answer: JSON 262,144 deep", fill("", "[", "")},
		{"answer: JSON 60 deep, wide", fill("[", strings.Repeat("[", 60)+strings.Repeat("]", 60)+",", "1]")},
		{"answer: text that hangs backtracking engines", fill("", "a", "!")},
		{"answer: text with many states of a pattern", fill("", "ab", "")},
		{"answer: bytes that are not UTF-8", fill("", "\xff", "")},
	} {
		measure(row.name, func() {
			if d := rules.Decide(httpdest.Answered{Job: &jobs.Job{}, Status: 400, Body: []byte(row.body)}); d.Then != httpdest.ThenFail {
				t.Errorf("%s: %+v", row.name, d.Decision)
			}
		})
	}
	zeros := make([]byte, 1<<20)
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	for range 100 {
		_, _ = packed.Write(zeros) // of a buffer: never fails
	}
	_ = packed.Close()
	const timeout = 2 * time.Second
	for _, row := range []struct {
		name  string
		serve func(http.ResponseWriter, *http.Request)
	}{
		{"call: JSON of 100 MB", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"a":"`)
			for range 100 {
				if _, err := w.Write(zeros); err != nil {
					return
				}
			}
		}},
		{"call: JSON 1,000,000 deep", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("[", 1_000_000)) }},
		{"call: gzip of 100 MB in 100 kB", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb.Bytes())
		}},
		{"call: body that comes slowly (timeout of 2 s)", func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "[")
				_ = http.NewResponseController(w).Flush()
				<-tick.C
			}
		}},
		{"call: headers without an end", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = conn.Close() }()
			endless(conn)
		}},
	} {
		api := httptest.NewServer(http.HandlerFunc(row.serve))
		h, err := httpdest.New(httpdest.Options{URL: api.URL, Rules: decider{rules}})
		if err != nil {
			t.Fatal(err)
		}
		job := &jobs.Job{ID: "0199d1c2-0000-7000-8000-000000000001", Destination: "shop", Payload: []byte("{}")}
		measure(row.name, func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := h.Publish(ctx, job); err == nil {
				t.Errorf("%s: no rule can have seen it, and it is taken for a success", row.name)
			}
		})
		if job.Response != nil && len(job.Response.Body) > 4096 {
			t.Errorf("%s: %d bytes are kept", row.name, len(job.Response.Body))
		}
		_ = h.Close()
		api.CloseClientConnections()
		api.Close()
	}
}

// decider makes rules those of an HTTP destination.
type decider struct{ *answers.Rules }

func (d decider) Decide(a httpdest.Answered) (httpdest.Decision, bool) {
	of := d.Rules.Decide(a)
	return of.Decision, of.Rule > 0
}

// endless writes headers until the connection breaks.
func endless(conn net.Conn) {
	_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
	for i := 0; err == nil; i++ {
		_, err = fmt.Fprintf(conn, "X-%d: %s\r\n", i, strings.Repeat("x", 1000))
	}
}
