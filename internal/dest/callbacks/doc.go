// Package callbacks notifies receivers of finished jobs: it sends a signed webhook for each
// job event to the address of the job's destination. docs/callbacks.md is the contract with
// receivers.
//
// # Relay and delivery
//
// The script that ends a job appends an event to a stream, in the same step (internal/queue/store).
// [Callbacks.Run], the relay, reads the streams and enqueues a job for each event in the
// reserved destination [Destination]. The event's id makes the job's id, so that another
// relay repeats the work of a dead one without a second callback. A worker's publisher
// delivers it ([Callbacks.Publish]): like any job it waits, is retried, is listed, and expires.
//
// A job itself pays one command for this, inside a script that runs anyway.
//
// # Isolation of receivers
//
// The key of a callback's job is the name of the finished job's destination, so each receiver has its own breaker:
// while a receiver is unreachable, too slow or asks for a pause, its jobs are held in Redis until a probe succeeds. A
// slow receiver gets at most [perReceiver] calls at once, so that slots are left for the others.
package callbacks
