// Package store keeps jobs in Redis: the keys, fields and scripts of a job's life. What a
// worker does with the job that it runs is internal/queue/engine's.
//
// A job is asynq's own task hash (asynq:{<queue>}:t:<id>). The headers of asynq's message
// hold what never changes after the enqueue; fields of ours, beside asynq's, hold what
// changes. So there is one record and nothing to reconcile (docs/adr/0002-one-record.md).
//
// Each script works on one queue, whose keys share a slot, and changes whole jobs
// only: at any instant a job is in exactly one place.
package store
