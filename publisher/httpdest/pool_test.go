package httpdest_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// The call uses the token of the pool's member, not of the job's key; without that token no call is made, and the job
// does not fail.
func TestPoolMember(t *testing.T) {
	t.Parallel()
	api := fakehttp.Record(t, nil)
	path := filepath.Join(t.TempDir(), "pool.json")
	if err := os.WriteFile(path, []byte(`{"b": "token-b", "a": "token-a"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := httpdest.OpenPool(path, httpdest.TokensFileOptions{CheckEvery: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	if got := file.Keys(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the members are %q", got)
	}
	h, err := httpdest.New(httpdest.Options{URL: api.URL, Tokens: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	job := &jobs.Job{ID: "1", Destination: "shop", Key: "alice", Payload: []byte("{}")}
	if err := h.Publish(publisher.WithMember(t.Context(), "b"), job); err != nil {
		t.Fatal(err)
	}
	if got := api.Requests()[0].Header.Get("Authorization"); got != "Bearer token-b" {
		t.Errorf("sent %q", got)
	}
	if err := h.Publish(publisher.WithMember(t.Context(), "gone"), job); !errors.Is(err, breakerhttp.ErrNotSent) {
		t.Errorf("a member that has left: %v", err)
	}
	if n := len(api.Requests()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
	if err := os.WriteFile(path, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := file.Keys(); len(got) != 2 {
		t.Errorf("a file without a token left %q", got)
	}
	if _, err := httpdest.OpenPool(path, httpdest.TokensFileOptions{}); err == nil {
		t.Error("a pool without a token was opened")
	}
}
