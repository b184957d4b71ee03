package publisher

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidegate/tidegate/jobs"
)

// call is n calls of different jobs.
type call struct {
	method, path, key string
	n                 int
	refused           bool
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	ok := func(path string, n int) call { return call{"", path, "", n, false} }
	no := func(path string, n int) call { return call{"", path, "", n, true} }
	for name, row := range map[string]struct {
		calls        []call
		route, keyBy string // "": no advice
	}{
		"one path":                {[]call{no("/v1/images", 3), ok("/v1/chat", 30)}, "/v1/images", "request.path"},
		"one path, also accepted": {[]call{no("/v1/images", 5), ok("/v1/chat", 30), ok("/v1/images", 10)}, "/v1/images", "request.path"},
		"paths with ids":          {[]call{no("/v1/items/7", 2), no("/v1/items/8", 2), ok("/v1/chat", 30)}, "/v1/items/*", `hasPrefix(request.path, "/v1/items") ? "v1:items" : key`},
		"a prefix":                {[]call{no("/v1/images/edit", 2), no("/v1/images/make", 2), ok("/v1/chat", 30)}, "/v1/images", `hasPrefix(request.path, "/v1/images") ? "v1:images" : key`},
		"a method":                {[]call{{"POST", "/v1/items", "", 4, true}, {"GET", "/v1/items", "", 30, false}}, "POST /v1/items", `request.method + ":" + request.path`},
		"a key's path":            {[]call{{"", "/a", "alice", 4, true}, {"", "/b", "alice", 30, false}}, "/a", "request.path"},
		"a key":                   {[]call{{"", "/a", "alice", 4, true}, {"", "/b", "bob", 30, false}}, "", ""},
		"several keys":            {[]call{{"", "/a", "alice", 2, true}, {"", "/a", "bob", 2, true}, {"", "/b", "eve", 30, false}}, "/a", "request.path"},
		"two paths":               {[]call{no("/a", 5), no("/b", 1), ok("/c", 30), ok("/a", 3), ok("/b", 3)}, "", ""},
		"nearly all calls":        {[]call{no("/a", 10), ok("/a", 300), ok("/b", 12)}, "", ""},
		"few refusals":            {[]call{no("/a", 2), ok("/b", 300)}, "", ""},
		"few others":              {[]call{no("/a", 20), ok("/b", 3)}, "", ""},
		"one path for all":        {[]call{no("/a", 20), ok("/a", 300)}, "", ""},
		"without paths":           {[]call{no("", 20), ok("", 300)}, "", ""},
		"others before alone":     {[]call{ok("/b", 300), no("/a", 5)}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r routes
			now, job := time.Now(), 0
			for _, c := range row.calls {
				for range c.n {
					job++
					r.add(c.key, &jobs.Job{ID: fmt.Sprint(job), Request: jobs.Request{Method: c.method, Path: c.path}}, c.refused, now)
				}
			}
			found, ok := r.advice(now, now.UnixMilli())
			if ok != (row.route != "") || ok && (found.Route != row.route || found.KeyBy != row.keyBy || found.Refused < routeJobs) {
				t.Errorf("%v %+v, want %s, %s", ok, found, row.route, row.keyBy)
			}
			if _, ok := r.advice(now.Add(routesFor), now.UnixMilli()); ok {
				t.Error("the advice stays for ever")
			}
		})
	}
	// One job that is refused again and again is no route.
	var r routes
	for range 50 {
		r.add("", &jobs.Job{ID: "a", Request: jobs.Request{Path: "/a"}}, true, time.Now())
		r.add("", &jobs.Job{ID: "b", Request: jobs.Request{Path: "/b"}}, false, time.Now())
	}
	if found, ok := r.advice(time.Now(), 0); ok {
		t.Errorf("one job: %+v", found)
	}
	// Many paths are bounded.
	for i := range 1000 {
		r.add(fmt.Sprint("k", i), &jobs.Job{ID: fmt.Sprint(i), Request: jobs.Request{Path: "/p" + string(rune('a'+i%26))}}, i%2 == 0, time.Now())
	}
	if len(r.seen) > mostRoutes {
		t.Errorf("%d routes are kept", len(r.seen))
	}
}

// An API that limits all calls alike gets such advice seldom, and not for long.
func TestRoutesOfOneLimit(t *testing.T) {
	t.Parallel()
	wrong, looks := 0, 0
	for range 200 {
		var r routes
		for i := range 300 {
			path := []string{"/a", "/b"}[rand.IntN(2)]
			r.add("", &jobs.Job{ID: fmt.Sprint(i), Request: jobs.Request{Path: path}}, rand.IntN(10) == 0, time.Now())
			if _, ok := r.advice(time.Now(), 0); ok {
				wrong++
			}
			looks++
		}
	}
	if part := float64(wrong) / float64(looks); part > 0.05 {
		t.Errorf("advice is wrong in %.1f %% of the time", 100*part)
	}
}
