package app

import (
	"encoding/json"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Whatever the API loses of Redis for a moment, it grants no permit above what is declared; after that it goes on. A
// permit that it cannot grant is an error that asks to come again.
func TestPermitsHoldDeclaredLimitsThroughBlips(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	const blips, slots, calls, callers = 4, 2, 60, 6
	for _, limit := range []struct{ name, environ string }{
		{"concurrency", "FLEET_CONCURRENCY=2"},
		{"rate", "RATE=60/24h:60"},
	} {
		for _, fault := range []string{"replies lost", "connections killed", "killed"} {
			t.Run(limit.name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t, redistest.WithAOF())
				p := redistest.NewLossy(t, s.Addr())
				blip := redistest.Blips(t, s, p, nil)[fault]
				var inFlight redistest.Gauge
				var refused atomic.Int64
				stop := make(chan struct{})
				var calling sync.WaitGroup
				for range 2 {
					api := runTheAPI(t, "REDIS_URL=redis://"+p.Addr+"/0", "LISTEN_ADDR=127.0.0.1:0",
						"DESTINATION_0_NAME=shop", "DESTINATION_0_URL=http://127.0.0.1:1", "DESTINATION_0_"+limit.environ)
					for range callers {
						calling.Go(func() {
							for {
								status, body := api.call(http.MethodPost, "/v1/permits", `{"destination":"shop","lease":"30s"}`, "wait=1")
								var granted struct{ ID string }
								switch status {
								case http.StatusOK:
									inFlight.Begin()
									_ = json.Unmarshal([]byte(body), &granted)
								case http.StatusTooManyRequests:
									refused.Add(1)
								case http.StatusServiceUnavailable:
								default:
									t.Errorf("a permit: %d %s", status, body)
								}
								select {
								case <-time.After(5 * time.Millisecond): // the call's length, or a pause
								case <-stop:
									return
								}
								if granted.ID == "" {
									continue
								}
								inFlight.End()
								for status = 0; status != http.StatusOK && status != http.StatusNotFound; {
									status, body = api.call(http.MethodPost, "/v1/permits/"+granted.ID+"/report", `{"outcome":"success"}`, "")
									if status >= 400 && status != http.StatusNotFound && status != http.StatusServiceUnavailable {
										t.Errorf("a report: %d %s", status, body)
									}
								}
							}
						})
					}
				}
				defer calling.Wait()
				defer close(stop)
				total := func() int {
					_, total := inFlight.Counts()
					return total
				}
				redistest.Eventually(t, "calls before the first blip", func() bool { return total() >= 2*slots })
				for i := range blips {
					if i == blips/2 && limit.name == "rate" {
						redistest.Eventually(t, "the rate is used up", func() bool { return refused.Load() > 0 })
					}
					last := total()
					blip()
					if limit.name != "rate" {
						redistest.Eventually(t, "calls after the blip", func() bool { return total() >= last+2*slots })
					}
				}
				most, n := inFlight.Counts()
				t.Logf("%d calls, at most %d at once", n, most)
				if limit.name == "rate" && n > calls {
					t.Errorf("%d calls, of %d", n, calls)
				}
				if limit.name != "rate" && most > slots {
					t.Errorf("%d calls at once, of %d", most, slots)
				}
			})
		}
	}
}
