package explain

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// A running job of a dead worker says so, and until when it is recovered; that of a live worker, or of
// one that extends its leases, does not.
func TestJobOfADeadWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		heartbeat time.Duration // of its worker, ago; 0: none
		lease     time.Duration // its end, from now; 0: none
		others    bool          // whether another worker serves the destination
		text      string        // a pattern; "": none
	}{
		"alive":                {5 * time.Second, 25 * time.Second, true, ""},
		"alive, a lease late":  {5 * time.Second, -10 * time.Second, true, ""},
		"it begins or ends":    {0, 28 * time.Second, true, ""},
		"no lease":             {40 * time.Second, 0, true, ""},
		"dead":                 {40 * time.Second, -10 * time.Second, true, `^its worker h:1 has sent no heartbeat for (39|4[0-2])s; another worker recovers the job within 1m(19|2[0-2])s$`},
		"dead, and forgotten":  {0, -10 * time.Second, true, `^its worker h:1 has sent no heartbeat for (39|4[0-2])s; another worker recovers the job within 1m(19|2[0-2])s$`},
		"dead, the only one":   {40 * time.Second, -10 * time.Second, false, `for (39|4[0-2])s; no other worker serves shop and recovers the job: start one with: tidegate worker$`},
		"dead for a long time": {time.Hour, -10 * time.Minute, true, `for 10m[23][0-9]s; another worker was to recover the job before; look for damage with: tidegate doctor$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := redistest.Database(t).Client(t)
			client, err := jobs.NewClient(rdb, jobs.WithDestinations("shop"))
			if err != nil {
				t.Fatal(err)
			}
			seen := func(worker string, ago time.Duration) {
				entry, err := json.Marshal(store.Worker{SeenAt: time.Now().Add(-ago).UnixMilli(), Destinations: []string{"shop"}})
				if err != nil {
					t.Fatal(err)
				}
				if err := rdb.HSet(t.Context(), store.DefaultNamespace.WorkersKey(), worker, entry).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if test.heartbeat > 0 {
				seen("h:1", test.heartbeat)
			}
			if test.others {
				seen("h:2", time.Second)
			}
			if test.lease != 0 {
				end := float64(time.Now().Add(test.lease).Unix() + 1)
				if err := rdb.ZAdd(t.Context(), store.LeaseKey("tidegate:shop"), redis.Z{Score: end, Member: "x"}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			job := &jobs.Job{ID: "x", Destination: "shop", Status: jobs.Running, Worker: "h:1"}
			w, err := New(rdb, client).Waiting(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			if test.text == "" {
				if w != nil {
					t.Errorf("it waits: %+v", w)
				}
				return
			}
			if w == nil || w.Reason != WorkerLost || !regexp.MustCompile(test.text).MatchString(w.Text) {
				t.Errorf("it waits: %+v; want %s", w, test.text)
			}
		})
	}
}

// All jobs of a page that run at one lost worker cost one look at a lease.
func TestJobsOfADeadWorkerCostOneLook(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	e := New(rdb, client)
	for range 20 {
		if _, err := e.Waiting(t.Context(), &jobs.Job{ID: "x", Destination: "shop", Status: jobs.Running, Worker: "h:1"}); err != nil {
			t.Fatal(err)
		}
	}
	if n := server.CommandStats(t)["zscore"]; n != 1 {
		t.Errorf("%d looks at leases", n)
	}
}
