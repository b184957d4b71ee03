package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

func TestErrorsAndKeysOfADestination(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.get(t, "/v1/destinations/none/errors").problem(t, http.StatusNotFound)
	b.get(t, "/v1/destinations/none/keys").problem(t, http.StatusNotFound)
	now := time.Now().UTC().Truncate(time.Millisecond)
	hour := fmt.Sprintf("tidegate:{tidegate:shop}:errors:%d", now.Unix()/3600)
	if err := b.redis.Client(t).HSet(t.Context(), hour, "no user #", fmt.Sprintf("3 %d post-8", now.UnixMilli())).Err(); err != nil {
		t.Fatal(err)
	}
	found := decode[ops.List[ops.ErrorCount]](t, b.get(t, "/v1/destinations/shop/errors?since="+now.Format(time.RFC3339)).ok(t, http.StatusOK))
	if want := (ops.ErrorCount{Count: 3, Error: "no user #", Match: "no user", At: now, Job: "post-8"}); len(found.Items) != 1 || found.Items[0] != want {
		t.Errorf("%+v, want %+v", found, want)
	}
	if found := decode[ops.List[ops.ErrorCount]](t, b.get(t, "/v1/destinations/shop/errors?since="+now.Add(2*time.Hour).Format(time.RFC3339)).ok(t, http.StatusOK)); len(found.Items) != 0 {
		t.Errorf("of later: %+v", found)
	}
	b.add(t, "shop", []jobs.Option{jobs.Key("alice")}, "a", "b")
	keys := decode[ops.KeyBacklog](t, b.get(t, "/v1/destinations/shop/keys").ok(t, http.StatusOK))
	if len(keys.Items) != 1 || keys.Items[0].Key != "alice" || keys.Items[0].Waiting != 2 || keys.Sampled {
		t.Errorf("%+v", keys)
	}
}
