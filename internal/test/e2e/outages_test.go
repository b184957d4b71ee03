package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// failing is an API whose answers depend on the time; a status from 300 on refuses the call.
type failing struct {
	answer func(now time.Time, path string) int

	mu                sync.Mutex
	accepted, refused int
}

func (a *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	status := a.answer(time.Now(), r.URL.Path)
	if status < http.StatusMultipleChoices {
		a.accepted++
	} else {
		a.refused++
	}
	a.mu.Unlock()
	if status < http.StatusMultipleChoices { // refusals come sooner
		select {
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(status)
}

// spacing accepts a call each interval, as limit_req of nginx does without a burst.
func spacing(interval time.Duration) func(time.Time, string) int {
	var next time.Time
	return func(now time.Time, _ string) int {
		if now.Before(next) {
			return http.StatusServiceUnavailable
		}
		next = now.Add(interval)
		return http.StatusOK
	}
}

// down answers with a status under a path for a time from the first call on: 403 is a ban, such as that of
// the rate limiter of fastify.
func down(status int, path string, length time.Duration) func(time.Time, string) int {
	var until time.Time
	return func(now time.Time, called string) int {
		if until.IsZero() {
			until = now.Add(length)
		}
		if strings.HasPrefix(called, path) && now.Before(until) {
			return status
		}
		return http.StatusOK
	}
}

// Two workers lose no job to a limiter that does not answer 429, or to an API that is down, and
// make few calls into the outage.
func TestOutages(t *testing.T) {
	t.Parallel()
	const workers, concurrency, threshold = 2, 5, 10
	// A pace is looked for up to the cooldown: the limiter's interval is well below it.
	outage, cooldown, spacingCooldown, interval, n := 4*time.Second, time.Second, 2*time.Second, 900*time.Millisecond, 20
	if long {
		outage, cooldown, spacingCooldown, interval, n = time.Minute, 5*time.Second, 5*time.Second, 500*time.Millisecond, 200
	}
	patient := jobs.Retry(jobs.RetryPolicy{MaxRetries: 10, InitialDelay: time.Second, BackoffMultiplier: 2, MaxDelay: 20 * time.Second})
	var table []string
	var mu sync.Mutex
	t.Cleanup(func() { t.Log("\n" + strings.Join(table, "\n")) })
	for _, row := range []struct {
		name     string
		answer   func(time.Time, string) int
		cooldown time.Duration
		opts     []jobs.Option // of the jobs under /b, every fifth one
		most     int           // calls into the outage, if they do not open the breaker
		each     int           // of those after each cooldown
	}{
		{"limiter without a burst, 503", spacing(interval), spacingCooldown, nil, 0, 3},
		{"ban with 403", down(http.StatusForbidden, "/", outage), cooldown, nil, 0, 1},
		{"down", down(http.StatusInternalServerError, "/", outage), cooldown, nil, 0, 1},
		{"one path down, its jobs have a retry policy", down(http.StatusInternalServerError, "/b", outage), cooldown, []jobs.Option{patient}, n / 5 * 11, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, redistest.Shared(t), fakeapi.Options{})
			api := &failing{answer: row.answer}
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			f.env["DESTINATION_0_URL"] = server.URL
			f.env["DESTINATION_0_CONCURRENCY"] = fmt.Sprint(concurrency)
			f.env["CIRCUIT_BREAKER_COOLDOWN_MS"] = fmt.Sprint(row.cooldown.Milliseconds())
			ids := f.enqueue(n-n/5, jobs.Path("/a"))
			ids = append(ids, f.enqueue(n/5, append(row.opts, jobs.Path("/b"))...)...)
			began := time.Now()
			for range workers {
				f.start()
			}
			redistest.Await(t, outage+time.Duration(n)*interval+2*time.Minute, "all jobs have ended", func() bool {
				for _, id := range ids {
					if j := f.job(id); !j.Status.Final() {
						return false
					}
				}
				return true
			})
			took := time.Since(began).Round(100 * time.Millisecond)
			failed := 0
			for _, id := range ids {
				if j := f.job(id); j.Status != jobs.Completed {
					failed++
					t.Errorf("job %s is %s: %s", id, j.Status, j.LastError)
				}
			}
			openings := 0
			for _, e := range f.history() {
				if e.To == breaker.Open {
					openings++
				}
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			// Those that opened, those in flight then, and one for each further cooldown; three where
			// the slow start after it succeeds at first.
			most := cmp.Or(row.most, threshold+workers*concurrency+row.each*openings)
			if api.refused > most {
				t.Errorf("%d calls into the outage, %d cooldowns; want at most %d", api.refused, openings, most)
			}
			if api.accepted != n {
				t.Errorf("%d calls were accepted, want %d", api.accepted, n)
			}
			mu.Lock()
			defer mu.Unlock()
			table = append(table, fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %v |", row.name, n, failed, openings, api.refused, most, took))
		})
	}
}
