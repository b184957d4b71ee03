package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Held jobs are counted; of the others few are counted, and many estimated.
func TestKeyBacklog(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ns, d := store.DefaultNamespace, redistest.Name(t, "d")
		q, high := ns.Queue(d, store.Default), ns.Queue(d, store.High)
		n := 0
		pipe := rdb.Pipeline()
		add := func(queue, state, key string) {
			n++
			id := fmt.Sprint("job-", n)
			pipe.HSet(t.Context(), store.TaskKey(queue, id), store.FieldState, state, store.FieldKey, key)
			switch state {
			case store.StateHeld:
				pipe.ZAdd(t.Context(), store.HeldJobsKey(queue, key), redis.Z{Score: float64(n), Member: id})
				pipe.ZAdd(t.Context(), store.HeldIndexKey(queue), redis.Z{Score: float64(n), Member: key})
			default: // a cancelled one is a tombstone
				pipe.LPush(t.Context(), store.PendingKey(queue), id)
			}
		}
		for range 7 {
			add(q, store.StateHeld, "alice")
		}
		add(high, store.StateHeld, "alice")
		for range 5 {
			add(q, store.StatePending, "bob")
		}
		add(q, store.StatePending, "alice")
		add(q, store.StateCancelled, "carol")
		look := func() store.KeyBacklog {
			t.Helper()
			if _, err := pipe.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			b, err := ns.Keys(t.Context(), rdb, d)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		want := store.KeyBacklog{Items: []store.KeyCount{{Key: "alice", Waiting: 9, Held: 8}, {Key: "bob", Waiting: 5}}, Read: 7, Of: 7}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("few (-want +got):\n%s", diff)
		}
		for i := range 6000 { // two of three are eve's
			add(q, store.StatePending, []string{"dan", "eve", "eve"}[i%3])
		}
		b := look()
		if !b.Sampled || b.Read != 800 || b.Of != 6007 || b.Items[0].Key != "eve" || b.Items[0].Waiting < 3600 || b.Items[0].Waiting > 4400 || b.Items[2] != (store.KeyCount{Key: "bob", Waiting: 38}) {
			t.Errorf("many: %+v", b)
		}
	})
}
