package breaker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// brownout is an API that refuses some of its calls with 503, and notes in which order they end.
type brownout struct {
	URL     string
	mu      sync.Mutex
	random  *rand.Rand
	part    float64 // of calls that it refuses,
	down    int     // calls after which it fails all; 0: never
	ended   int
	row     int // of failures that have just ended,
	longest int // and the longest so far
}

func newBrownout(t *testing.T, part float64) *brownout {
	t.Helper()
	a := &brownout{random: rand.New(rand.NewPCG(4, 5)), part: part}
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	a.URL = s.URL
	return a
}

func (a *brownout) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	takes := time.Duration(1+a.random.IntN(8)) * time.Millisecond
	a.mu.Unlock()
	<-time.After(takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended++
	if a.random.Float64() < a.part || a.down > 0 && a.ended > a.down {
		a.row++
		a.longest = max(a.longest, a.row)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	a.row = 0
}

// fleet makes calls in several goroutines, with an instance for each client, until the API has answered this number of calls
// or the breaker refuses one. It returns how many were answered.
func (a *brownout) fleet(t *testing.T, clients []redis.UniversalClient, o Options, calls int) int {
	t.Helper()
	client := &http.Client{Timeout: time.Minute}
	var work sync.WaitGroup
	var job atomic.Int64
	var stop atomic.Bool
	for _, rdb := range clients {
		b := start(t, rdb, o)
		for range 6 {
			work.Go(func() {
				for !stop.Load() {
					p, err := b.Allow(patient(t))
					if errors.Is(err, ErrOpen) {
						stop.Store(true)
						return
					} else if err != nil {
						t.Error(err)
						return
					}
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL, nil)
					if err != nil {
						t.Error(err)
						return
					}
					answer, err := client.Do(request)
					if err != nil {
						t.Error(err)
						return
					}
					_ = answer.Body.Close()
					n := job.Add(1)
					if _, err := p.Report(patient(t), Answered(answer.StatusCode).WithJob(fmt.Sprint("job", n))); err != nil {
						t.Error(err)
					}
					if int(n) >= calls {
						stop.Store(true)
					}
				}
			})
		}
	}
	work.Wait()
	return int(job.Load())
}

// fleetOf are the clients of workers, which Redis's replies reach after twice that time.
func fleetOf(t *testing.T, s *redistest.Server, away time.Duration) (clients []redis.UniversalClient) {
	t.Helper()
	addr := s.Addr()
	if away > 0 {
		addr = redistest.Delayed(t, addr, away)
	}
	for range 8 {
		clients = append(clients, redistest.ClientOf(t, addr))
	}
	return clients
}

// An API that refuses a fifth of its calls is not down, however many workers there are, and wherever Redis is: an outage
// is ten calls in a row that failed, with no other response between them. When it goes down, ten calls show it.
func TestFailuresAmongSuccessesAreNoOutage(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	for name, away := range map[string]time.Duration{"near": 0, "10 ms away": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			a := newBrownout(t, .2)
			o := Options{Destination: "api", Timeout: 10 * time.Second}
			n := a.fleet(t, fleetOf(t, s, away), o, 3000)
			status, err := DefaultNamespace.Get(patient(t), s.Client(t), "api")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls, at most %d failures in a row", n, a.longest)
			if status.State != Closed && a.longest < DefaultOutageThreshold {
				t.Errorf("%s because of %s after %d calls, at most %d of which failed in a row", status.State, status.Cause, n, a.longest)
			}
		})
		t.Run("down, "+name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			a := newBrownout(t, .2)
			a.down = 300
			n := a.fleet(t, fleetOf(t, s, away), Options{Destination: "api", Timeout: 10 * time.Second}, 6000)
			status, err := DefaultNamespace.Get(patient(t), s.Client(t), "api")
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls since it is down, %d in the incident", n-a.down, status.Wasted)
			// Its instances learn of it from Redis while others of their calls end.
			inFlight := 48 * (2 + int(3*away/(4*time.Millisecond)))
			if status.IncidentCause != CauseOutage || n-a.down > DefaultOutageThreshold+inFlight {
				t.Errorf("%s because of %q after %d calls", status.State, status.IncidentCause, n-a.down)
			}
		})
	}
}
