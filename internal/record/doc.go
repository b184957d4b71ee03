// Package record knows how a job lies in Redis: the names of the keys, the
// fields of the hash and the encoding of asynq's task message.
//
// A job is asynq's own task hash (asynq:{<queue>}:t:<id>). What never changes
// after the enqueue travels in the headers of asynq's message; what changes is
// a field of ours beside asynq's. So there is one record and nothing to
// reconcile (docs/adr/0002-one-record.md).
package record
