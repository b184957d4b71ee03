package dashboard_test

import (
	"html"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// The page of a destination shows how long calls take, its errors with links to such jobs, and its backlog by key.
func TestDestinationShowsErrorsKeysAndCallTimes(t *testing.T) {
	t.Parallel()
	s := open(t, "", "shop")
	s.get("/destinations/shop").hides(t, "Top errors", "Backlog by key", "Call time")
	ns, now := store.DefaultNamespace, time.Now()
	key, field := ns.CallCounter("shop", now, 210*time.Millisecond)
	if err := s.rdb.HSet(t.Context(), key, field, 40).Err(); err != nil {
		t.Fatal(err)
	}
	if err := ns.CountErrors(t.Context(), s.rdb, "shop", now, []store.ErrorCount{{Error: "item # is <b>gone</b>", Count: 7, Job: "post-1", At: now}}); err != nil {
		t.Fatal(err)
	}
	s.enqueue("shop", 1, jobs.ID("post-1"), jobs.Key("alice"))
	if err := s.rdb.HSet(t.Context(), "asynq:{tidegate:shop}:t:post-1", store.FieldTook, 1250, store.FieldLastError, "item 7 is <b>gone</b>").Err(); err != nil {
		t.Fatal(err)
	}
	s.age()
	p := s.get("/destinations/shop")
	p.shows(t, http.StatusOK, "Call time, 1 h", "Top errors", "item # is <b>gone</b>", "7", "Backlog by key", "alice")
	link := regexp.MustCompile(`href="(/jobs\?destination=shop&amp;error=[^"]+)"`).FindStringSubmatch(p.body)
	if link == nil {
		t.Fatal("no link to the jobs with the error")
	}
	s.get(html.UnescapeString(link[1])).shows(t, http.StatusOK, "post-1")
	s.get("/jobs/post-1").shows(t, http.StatusOK, "Call took", "1.3s")
}
