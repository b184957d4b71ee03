// Package store keeps jobs in Redis: every key, field and script of a job's life that no
// worker's engine is needed for, by the verbs of the field. What a worker does with the
// job that it runs is internal/asynqx's.
//
// A job is asynq's own task hash (asynq:{<queue>}:t:<id>). What never changes
// after the enqueue travels in the headers of asynq's message; what changes is
// a field of ours beside asynq's. So there is one record and nothing to
// reconcile (docs/adr/0002-one-record.md).
//
// Each script works on one queue, whose keys share a slot, and changes whole jobs
// only: at any instant a job is in exactly one place.
package store
