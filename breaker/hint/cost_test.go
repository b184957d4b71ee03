package hint_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
)

// plain is the header of an answer that tells of no limit.
var plain = header("Content-Type", "application/json", "Content-Length", "17", "Etag", `"x"`, "Cache-Control", "no-store", "Server", "nginx")

// Most answers of most APIs say nothing: reading them must cost next to nothing. Not
// parallel, as others would be counted too.
func TestNothingToReadAllocatesNothing(t *testing.T) {
	now := time.Now()
	least := testing.AllocsPerRun(100, func() { hint.Parse(plain, false, now) })
	for range 4 { // what else the process does allocates, too
		least = min(least, testing.AllocsPerRun(100, func() { hint.Parse(plain, false, now) }))
	}
	if least != 0 {
		t.Errorf("%v allocations, want 0", least)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, bm := range []struct {
		name    string
		header  http.Header
		limited bool
	}{
		{"nothing", plain, false},
		{"RateLimit", header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"default";q=100;w=60`), false},
		{"X-RateLimit", header("X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59", "X-RateLimit-Reset", "1795262415"), false},
		{"Retry-After", header("Retry-After", "30"), true},
		{"Retry-After date", header("Retry-After", "Sat, 21 Nov 2026 12:00:45 GMT"), true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			now := time.Now()
			for b.Loop() {
				hint.Parse(bm.header, bm.limited, now)
			}
		})
	}
}
