// Package callbacks tells the owners of jobs how these have ended: a signed webhook for
// each end, to the address of the job's destination. docs/callbacks.md is what receivers
// are promised.
//
// # How a callback comes about
//
// The script that ends a job appends that to a stream, in the same step (internal/store).
// [Callbacks.Run], the relay, reads the streams and enqueues a job for each entry in the
// reserved destination [Destination]. Its id is made of the entry's, so that a relay that
// died between the enqueue and the mark of how far it has come is repeated by another one
// without anything being told twice. Some worker's publisher delivers it
// ([Callbacks.Publish]): like any job it waits, is retried, can be looked at, and expires.
//
// The way of a job to its own API is not touched by any of this: it costs one command
// inside a script that runs anyway.
//
// # Receivers do not wait for each other
//
// The key of these jobs is the name of the destination whose jobs they tell of. So each
// receiver has a breaker of its own: one that cannot be reached, takes too long or asks
// for a pause is left alone until a single call finds it well, and meanwhile its jobs are
// set aside in Redis. One that answers slowly is bounded to [perReceiver] calls at once,
// and there are always slots left for the others.
package callbacks
