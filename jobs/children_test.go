package jobs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

func TestChildren(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := benchOn(t, rdb)
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		parent := b.dest + "-parent"
		_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID(parent)))
		must(err)
		var want []string
		for i := range 60 {
			id := fmt.Sprintf("%s-child%02d", b.dest, i)
			_, err := b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID(id), jobs.After(parent)))
			must(err)
			want = append(want, id)
		}
		look := func(when string) {
			t.Helper()
			got, err := b.Children(ctx, parent)
			must(err)
			known := map[string]bool{}
			for _, id := range want {
				known[id] = true
			}
			for _, id := range got {
				if !known[id] {
					t.Errorf("%s: %s is no child, or named twice", when, id)
				}
				delete(known, id)
			}
			if len(got) != 50 {
				t.Errorf("%s: %d children, want 50", when, len(got))
			}
		}
		look("while they wait")
		must(b.Cancel(ctx, parent))
		look("when they have been cancelled")
		if got, err := b.Children(ctx, want[0]); err != nil || len(got) != 0 {
			t.Errorf("children of a child: %v, %v", got, err)
		}
		for _, id := range []string{b.dest + "-nobody", "../x"} {
			if _, err := b.Children(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
				t.Errorf("children of %s: %v, want ErrNotFound", id, err)
			}
		}

		other := b.dest + "-other"
		_, err = b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID(other)))
		must(err)
		_, err = b.Enqueue(ctx, jobs.New(b.dest, 1, jobs.ID(other+"2"), jobs.After(other)))
		must(err)
		must(b.Cancel(ctx, other))
		must(b.Retry(ctx, other))
		must(b.Retry(ctx, other+"2"))
		got, err := b.Children(ctx, other) // once, though it was told, and waits again
		must(err)
		if diff := cmp.Diff([]string{other + "2"}, got); diff != "" {
			t.Errorf("after a retry (-want +got):\n%s", diff)
		}
	})
}
