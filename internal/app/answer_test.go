package app

import (
	"net/http"
	"testing"

	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

// A 401 holds the jobs of a destination whose tokens come from OAuth 2.0, as in a worker.
func TestTryAnswerOfOAuth(t *testing.T) {
	t.Parallel()
	cfg := load(t, "DESTINATION_0_NAME=art", "DESTINATION_0_URL=https://art.example.com", "DESTINATION_0_OAUTH_TOKEN_URL=https://art.example.com/token",
		"DESTINATION_0_OAUTH_CLIENT_ID=me", "DESTINATION_0_OAUTH_CLIENT_SECRET=hunter2")
	got, err := TryAnswer(t.Context(), cfg.Destinations[0], publishertest.NewJob(jobs.New("art", map[string]string{"a": "b"})), http.StatusUnauthorized, nil, nil)
	if err != nil || got.Outcome != "unauthorized" {
		t.Errorf("outcome %q, want unauthorized: %v", got.Outcome, err)
	}
}
