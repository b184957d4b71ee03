package callbacks

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/tidegate/tidegate/jobs"
)

// Jobs name their own callbacks, beside that of their destination or without one, to allowed hosts only.
func TestOwnCallbacks(t *testing.T) {
	t.Parallel()
	b := newHarness(t)
	e := listen(t, nil)
	u, err := url.Parse(e.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	blog := e.receiver("blog")
	blog.URL = ""
	b.start(worker{receivers: []Receiver{e.receiver("shop"), blog}, hosts: []string{u.Host}, handle: func(_ context.Context, job *jobs.Job) error {
		if strings.HasSuffix(job.ID, "bad") {
			return jobs.Discard(errors.New("no"))
		}
		return nil
	}})
	for _, destination := range []string{"shop", "blog"} {
		for _, name := range []string{"good", "bad", "elsewhere"} {
			spec := jobs.New(destination, 1, jobs.ID(destination+"-"+name))
			spec.OnSuccess, spec.OnFailure = e.server.URL+"/done?of="+destination, e.server.URL+"/failed?of="+destination
			if name == "elsewhere" {
				spec.OnSuccess = "http://127.0.0.1:1/done"
			}
			if _, err := b.client.Enqueue(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.await("all callbacks", func() bool { return len(e.all()) == 7 })
	got := map[string]int{}
	for _, h := range e.all() {
		got[fmt.Sprint(h.uri, " ", strings.HasSuffix(h.id, ":own"))]++
	}
	for _, want := range []string{"/done?of=shop true", "/done?of=blog true", "/failed?of=shop true", "/failed?of=blog true"} {
		if got[want] != 1 {
			t.Errorf("%s: %d, of %v", want, got[want], got)
		}
	}
	if got["/hook false"] != 3 {
		t.Errorf("the destination's own: %v", got)
	}
	b.eventually("that the others fail", func() bool {
		failed := 0
		for _, j := range b.callbacks() {
			if j.Status == jobs.Failed && strings.Contains(j.LastError, "not in CALLBACK_HOSTS") {
				failed++
			}
		}
		return failed == 2
	})
	for _, wrong := range []string{"ftp://a/b", "/a", "https://", "https://[::1]/a", "https://" + strings.Repeat("a", 65)} {
		spec := jobs.New("shop", 1)
		spec.OnFailure = wrong
		if _, err := b.client.Enqueue(t.Context(), spec); !errors.Is(err, jobs.ErrInvalid) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
