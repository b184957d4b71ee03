package ops_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/internal/view/ops"
	"github.com/tidegate/tidegate/jobs"
)

// A job that if_late refuses makes room in its token's backlog at once; one that may have been accepted does not.
func TestRefusedJobsLeaveTheBacklog(t *testing.T) {
	t.Parallel()
	rdb := redistest.Database(t).Client(t)
	client, err := jobs.NewClient(rdb)
	if err != nil {
		t.Fatal(err)
	}
	system := ops.New(ops.Options{Redis: rdb, Client: client})
	ctx := access.With(t.Context(), access.Identity{Name: redistest.Name(t, "token"), Bounds: access.Bounds{MaxBacklog: 1}})
	for i, c := range []struct {
		err  error
		room int
	}{{&jobs.LateError{}, 1}, {&jobs.LateError{}, 1}, {errors.New("lost"), 1}, {nil, 0}} {
		spec := jobs.New("shop", 1, jobs.ID(fmt.Sprint("j", i)))
		taken, _, err := system.Take(ctx, []*jobs.Spec{spec}, 0)
		if taken != c.room || err != nil {
			t.Errorf("case %d: took %d, %v, want %d", i, taken, err, c.room)
		}
		system.Return(ctx, spec, c.err)
	}
}
