package cli

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/view/ops"
)

func TestErrorsAndKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, shop...)
	b.run(t, "errors", "shop").want(t, 0, "no attempt ended with an error\n", "")
	b.run(t, "keys", "shop").want(t, 0, "no job waits\n", "")
	b.run(t, "errors", "blog").want(t, 4, "", "tidegate: destination \"blog\" is not known; known are shop\n")

	now := time.Now()
	hour := fmt.Sprintf("tidegate:{tidegate:shop}:errors:%d", now.Unix()/3600)
	if err := b.server.Client(t).HSet(t.Context(), hour, "answered 422: item # does not exist", fmt.Sprintf("812 %d post-7", now.Add(-90*time.Second).UnixMilli())).Err(); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^COUNT  LAST       JOB     ERROR
812    1m3[0-9]s ago  post-7  answered 422: item # does not exist
$`)
	if out := b.run(t, "errors", "shop", "--since", "1h").ok(t); !want.MatchString(out) {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	doc := decode[ops.Page[ops.ErrorCount]](t, b.run(t, "errors", "shop", "-o", "json").ok(t))
	if len(doc.Items) != 1 || doc.Items[0].Count != 812 || doc.Items[0].Match != "answered 422: item" {
		t.Errorf("document %+v", doc)
	}

	b.enqueue(t, "--key alice", "a", "b")
	b.enqueue(t, "--key bob", "c")
	b.enqueue(t, "", "d")
	b.run(t, "keys", "shop").want(t, 0, "KEY    WAITING  HELD\nalice  2        0\n-      1        0\nbob    1        0\n", "")
	if doc := decode[ops.KeyBacklog](t, b.run(t, "keys", "shop", "-o", "json").ok(t)); len(doc.Items) != 3 || doc.Sampled || doc.Of != 4 {
		t.Errorf("document %+v", doc)
	}
}
