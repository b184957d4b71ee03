package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// Jobs without a retry policy have that of their destination; a job's own wins.
func TestRetryPolicyOfTheDestination(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	api, url := startAPI(t, fakeapi.Options{Script: func(n int, r *http.Request) *fakeapi.Answer {
		if r.URL.Path == "/down" || n == 1 {
			return &fakeapi.Answer{Status: http.StatusInternalServerError}
		}
		return nil
	}})
	cfg := load(t, "REDIS_URL="+server.URL(), "OPS_ADDR=off", "DESTINATION_0_NAME=shop", "DESTINATION_0_URL="+url, "DESTINATION_0_RETRY=max=2,initial=1s,multiplier=1")
	client, err := jobs.NewClient(server.Client(t), jobs.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, cfg)
	for _, test := range []struct {
		id      string
		options []jobs.Option
		status  jobs.Status
		calls   int
	}{
		{"retried", nil, jobs.Completed, 2},
		{"exhausted", []jobs.Option{jobs.Path("/down")}, jobs.Failed, 3},
		{"own", []jobs.Option{jobs.Path("/down"), jobs.Retry(jobs.RetryPolicy{MaxRetries: 1, InitialDelay: time.Second})}, jobs.Failed, 2},
	} {
		before := api.Stats().Calls
		if _, err := client.Enqueue(t.Context(), jobs.New("shop", 1, append(test.options, jobs.ID(test.id))...)); err != nil {
			t.Fatal(err)
		}
		j, err := client.Wait(t.Context(), test.id)
		if err != nil {
			t.Fatal(err)
		}
		if calls := api.Stats().Calls - before; j.Status != test.status || calls != test.calls {
			t.Errorf("%s: %s after %d calls, want %s after %d", test.id, j.Status, calls, test.status, test.calls)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
