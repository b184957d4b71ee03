package dashboard_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// The overview of many destinations costs Redis a bounded number of commands, and 20 viewers
// cost about what one costs.
func TestOverviewOfManyDestinations(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprint("d", i)
	}
	s := open(t, "", names...)
	s.enqueue("d7", 3)
	s.get("/") // scripts are loaded
	for _, viewers := range []int{1, 20} {
		s.age()
		s.redis.ResetStats(t)
		began := time.Now()
		var all sync.WaitGroup
		for range viewers {
			all.Go(func() { s.get("/").shows(t, http.StatusOK, "d199") })
		}
		all.Wait()
		took := time.Since(began)
		n := total(s.redis.CommandStats(t))
		t.Logf("%d viewers: %d commands, within scripts too, in %v", viewers, n, took)
		// Two scripts of some five commands for the breakers of each, its incidents, and two hours.
		if seconds := int64(took/time.Second) + 1; n > seconds*3_200 {
			t.Errorf("%d viewers cost %d commands within %d s, want at most 3,200 a second", viewers, n, seconds)
		}
	}
}
