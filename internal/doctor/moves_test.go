package doctor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/doctor"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
)

// cut lets so many commands through, and none after them, as a process that dies does.
type cut struct{ left atomic.Int64 }

var errCut = errors.New("the process has died")

func (c *cut) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cut) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c.left.Add(-1) < 0 {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

func (c *cut) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if c.left.Add(-1) < 0 {
			for _, cmd := range cmds {
				cmd.SetErr(errCut)
			}
			return errCut
		}
		return next(ctx, cmds)
	}
}

// A move that dies after any of its commands leaves each job in one of the two
// destinations, from the doctor's next look on; and a move that is run again ends it.
func TestMoveDiesAnywhere(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) redis.UniversalClient{
		"redis":   func(t *testing.T) redis.UniversalClient { return redistest.Database(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.StartCluster(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			moveDiesAnywhere(t, open(t))
		})
	}
}

func moveDiesAnywhere(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	death := &cut{}
	death.left.Store(1 << 40)
	empty := func() error { return rdb.FlushDB(ctx).Err() }
	switch c := rdb.(type) {
	case *redis.Client:
		c.AddHook(death)
	case *redis.ClusterClient:
		c.AddHook(death)
		empty = func() error {
			return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return node.FlushDB(ctx).Err() })
		}
	}
	for commands := int64(0); ; commands++ {
		if err := empty(); err != nil { // the doctor looks at all queues
			t.Fatal(err)
		}
		from, to, elsewhere := redistest.Name(t, "from"), redistest.Name(t, "to"), redistest.Name(t, "else")
		client, err := jobs.NewClient(rdb, jobs.WithDestinations(from, to, elsewhere))
		if err != nil {
			t.Fatal(err)
		}
		id := func(name string) string { return name + "-" + from }
		for _, s := range []*jobs.Spec{
			jobs.New(elsewhere, 1, jobs.ID(id("grandparent"))),
			jobs.New(from, 1, jobs.ID(id("plain"))),
			jobs.New(from, 1, jobs.ID(id("later")), jobs.Delay(time.Hour)),
			jobs.New(from, 1, jobs.ID(id("parent")), jobs.After(id("grandparent"))),
			jobs.New(from, 1, jobs.ID(id("child")), jobs.After(id("parent")), jobs.Batch(from)),
			jobs.New(elsewhere, 1, jobs.ID(id("grandchild")), jobs.After(id("child"))),
		} {
			if _, err := client.Enqueue(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		death.left.Store(commands)
		_, err = client.Move(ctx, from, to)
		died := err != nil
		if died && !errors.Is(err, errCut) {
			t.Fatalf("after %d commands: %v", commands, err)
		}
		death.left.Store(1 << 40)
		if commands%2 == 0 {
			if _, err := doctor.Run(ctx, rdb, doctor.Options{Family: store.AskParents(rdb)}); err != nil {
				t.Fatal(err)
			}
		} else if _, err := client.Move(ctx, from, to); err != nil {
			t.Fatal(err)
		}
		report, err := doctor.Run(ctx, rdb, doctor.Options{DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Kind != doctor.KindNoWorker {
				t.Errorf("after %d commands the doctor finds %+v", commands, f)
			}
		}
		for name, want := range map[string]string{"plain": store.StatePending, "later": store.StateScheduled, "parent": store.StateWaiting, "child": store.StateWaiting} {
			var found []string
			for _, d := range []string{from, to} {
				if state := rdb.HGet(ctx, store.TaskKey(store.DefaultNamespace.Queue(d, store.Default), id(name)), store.FieldState).Val(); state != "" {
					found = append(found, state)
				}
			}
			if got := strings.Join(found, " "); got != want {
				t.Errorf("after %d commands %s is %q, want %q once", commands, name, got, want)
			}
		}
		// The family holds together: what is cancelled at its top is cancelled all the way down.
		if err := client.Cancel(ctx, id("grandparent")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"parent", "child", "grandchild"} {
			if j, err := client.Get(ctx, id(name)); err != nil || j.Status != jobs.Cancelled {
				t.Errorf("after %d commands %s is %+v, %v; want it cancelled", commands, name, j, err)
			}
		}
		if !died {
			t.Logf("a move took %d commands", commands)
			return
		}
		if t.Failed() {
			return
		}
	}
}
