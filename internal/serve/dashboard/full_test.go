package dashboard_test

import (
	"net/http"
	"testing"
)

// A Redis that records nothing is the first thing that each page says, also where it knows of no worker and no job.
func TestFullRedisOnPages(t *testing.T) {
	t.Parallel()
	s := open(t, "")
	if err := s.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/jobs", "/destinations", "/incidents"} {
		s.get(path).shows(t, http.StatusOK, "Nothing is recorded. Redis is out of memory (maxmemory): jobs still run, but nothing is recorded")
	}
}
