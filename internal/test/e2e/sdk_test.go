package e2e

import (
	"context"
	"net/http"
	"os/exec"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// The clients of sdk/ against two workers and an API in processes of their own; the limit is met in the middle.
func TestClients(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t), fakeapi.Options{
		Limiter: fakeapi.FixedWindow{Quota: 1000, Window: time.Second},
		Script: func(_ int, r *http.Request) *fakeapi.Answer {
			if r.URL.Path != "/accept" {
				return nil
			}
			return &fakeapi.Answer{Status: http.StatusAccepted, Header: http.Header{"Tidegate-Outcome": {"accepted; within=1h"}}}
		},
	})
	f.env["DESTINATION_0_TRUST_OUTCOME"] = "true"
	f.dest = "shop"
	f.env["DESTINATION_0_NAME"], f.env["DESTINATION_0_CONCURRENCY"] = f.dest, "20"
	f.env["DESTINATION_1_NAME"], f.env["DESTINATION_1_URL"] = "uploads", f.url // only permits call it
	f.env["LISTEN_ADDR"] = "127.0.0.1:0"
	f.start()
	f.start()
	api := f.apiInstance()
	for _, tc := range []struct {
		name, folder string
		command      []string
	}{
		{"python", "../../../sdk/python", []string{"python3", "-m", "unittest", "discover", "-s", "tests"}},
		{"typescript", "../../../sdk/typescript", []string{"node", "--test", "test/"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, tc.command[0], tc.command[1:]...)
			cmd.Dir = tc.folder
			cmd.Env = append(f.environ(), "TIDEGATE_URL="+api.url, "PYTHONPATH=.", "PYTHONDONTWRITEBYTECODE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
