package publisher

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Of many failures in a minute ten are logged, and the rest is counted.
func TestFailureLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := &failureLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
		said := func() string {
			f.mu.Lock() // which the end of a window holds while it logs
			defer f.mu.Unlock()
			defer out.Reset()
			return out.String()
		}
		fail := func(from, to int) {
			for i := from; i < to; i++ {
				f.add(fmt.Sprint("job-", i), "answered 403 Forbidden")
			}
		}
		fail(0, 60)
		want := ""
		for i := range 10 {
			want += fmt.Sprintf("level=WARN msg=\"job failed\" job=job-%d error=\"answered 403 Forbidden\"\n", i)
		}
		if got := said(); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if got := said(); got != "level=WARN msg=\"more jobs failed within a minute\" jobs=50\n" {
			t.Errorf("after a minute: %s", got)
		}
		fail(60, 61)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := said(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "job=job-60") {
			t.Errorf("one more: %s", got)
		}
		fail(61, 72)
		f.stop()
		if got := said(); strings.Count(got, "\n") != 11 || !strings.HasSuffix(got, "jobs=1\n") {
			t.Errorf("at the end of the worker: %s", got)
		}
		f.add("long", strings.Repeat("x", 1000))
		if got := said(); len(got) > 300 {
			t.Errorf("%d bytes of a long error", len(got))
		}
	})
}
