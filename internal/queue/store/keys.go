package store

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Namespace begins the names of all queues, keys and channels of an installation, so that
// several share a Redis database. A queue's own keys take it from the queue's name.
type Namespace string

// DefaultNamespace is the namespace of an installation that names none.
const DefaultNamespace Namespace = "tidegate"

var namespacePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

// Validate returns an error if n is not valid.
func (n Namespace) Validate() error {
	if n == DefaultNamespace {
		return nil
	}
	if !namespacePattern.MatchString(string(n)) {
		return fmt.Errorf("%.50q is not a valid namespace: it must match [a-z0-9][a-z0-9-]{0,30}", string(n))
	}
	if n == "asynq" {
		return errors.New(`"asynq" is not a valid namespace: asynq's own keys begin with it`)
	}
	return nil
}

// Key is the key, or channel, of a name that belongs to no queue.
func (n Namespace) Key(name string) string { return string(n) + ":" + name }

// SlotKey is the key of a name in the slot that a tag determines.
func (n Namespace) SlotKey(tag, name string) string { return string(n) + ":{" + tag + "}:" + name }

// Priority is the suffix-bearing part of a queue name.
type Priority string

// The priorities of a job. Default has no suffix in the queue's name.
const (
	High    Priority = "high"
	Default Priority = "default"
	Low     Priority = "low"
)

// Priorities lists all priorities, the most urgent first.
var Priorities = []Priority{High, Default, Low}

// QueuesKey is asynq's set of queue names. Writers of a queue add it.
const QueuesKey = "asynq:queues"

// DestinationsKey is the hash of destinations that workers have served: name → unix
// milliseconds of the last heartbeat.
func (n Namespace) DestinationsKey() string { return n.Key("destinations") }

// WorkersKey is the hash of the workers: name → JSON of a Worker.
func (n Namespace) WorkersKey() string { return n.Key("workers") }

// RemovedKey is a HASH of the destinations that were taken out of a destinations file or forgotten: name to when,
// in unix milliseconds.
func (n Namespace) RemovedKey() string { return n.Key("removed") }

// AbandonedKey holds the id of a job of the gateway whose caller hung up, by the digest of its request, for a minute.
func (n Namespace) AbandonedKey(digest string) string { return n.Key("abandoned:" + digest) }

// AuditKey is the stream of the acts of operators.
func (n Namespace) AuditKey() string { return n.SlotKey("audit", "acts") }

// Queue returns the asynq queue of a destination's jobs of one priority.
func (n Namespace) Queue(destination string, p Priority) string {
	queue := n.Key(destination)
	if p == Default || p == "" {
		return queue
	}
	return queue + ":" + string(p)
}

// Queues returns the queues of a destination, the most urgent first.
func (n Namespace) Queues(destination string) []string {
	out := make([]string, len(Priorities))
	for i, p := range Priorities {
		out[i] = n.Queue(destination, p)
	}
	return out
}

// Owns reports whether a queue is one of n's.
func (n Namespace) Owns(queue string) bool {
	_, _, ok := ParseQueue(queue)
	return ok && namespaceOf(queue) == n
}

// namespaceOf returns the namespace of a queue.
func namespaceOf(queue string) Namespace {
	name, _, _ := strings.Cut(queue, ":")
	return Namespace(name)
}

// ParseQueue is the inverse of Queue, in any namespace; ok is false for queues that cannot
// be Tidegate's.
func ParseQueue(queue string) (destination string, p Priority, ok bool) {
	_, rest, _ := strings.Cut(queue, ":")
	name, suffix, found := strings.Cut(rest, ":")
	switch {
	case name == "" || namespaceOf(queue).Validate() != nil:
		return "", "", false
	case !found:
		return name, Default, true
	case Priority(suffix) == High, Priority(suffix) == Low:
		return name, Priority(suffix), true
	}
	return "", "", false
}

// TaskPrefix is the prefix of the task hashes of a queue.
func TaskPrefix(queue string) string { return "asynq:{" + queue + "}:t:" }

// TaskKey is the key of one task hash.
func TaskKey(queue, id string) string { return TaskPrefix(queue) + id }

// GuardKey is a key that never exists; see Script.
func GuardKey(queue string) string { return ours(queue, "none") }

// PendingKey is asynq's LIST of the ready ids, the next one rightmost.
func PendingKey(queue string) string { return "asynq:{" + queue + "}:pending" }

// ActiveKey is asynq's LIST of the ids in flight.
func ActiveKey(queue string) string { return "asynq:{" + queue + "}:active" }

// LeaseKey is asynq's ZSET of the ids in flight by the end of their lease, unix seconds.
func LeaseKey(queue string) string { return "asynq:{" + queue + "}:lease" }

// ScheduledKey is asynq's ZSET of the scheduled ids by time, in whole unix seconds, rounded
// up: asynq's tools read no fractions. DueKey has the exact time.
func ScheduledKey(queue string) string { return "asynq:{" + queue + "}:scheduled" }

// RetryKey is asynq's ZSET of the ids that wait for a retry, by time, in whole unix seconds,
// rounded up; see DueKey.
func RetryKey(queue string) string { return "asynq:{" + queue + "}:retry" }

// CompletedKey is asynq's ZSET of completed ids by when they are deleted, unix
// seconds.
func CompletedKey(queue string) string { return "asynq:{" + queue + "}:completed" }

// PausedKey is asynq's key that exists while the operator pauses the queue.
func PausedKey(queue string) string { return "asynq:{" + queue + "}:paused" }

// ProcessedKey is asynq's count of processed tasks; with a date behind it, that day's.
func ProcessedKey(queue string) string { return "asynq:{" + queue + "}:processed" }

// ours returns a key of our own, in the queue's slot.
func ours(queue, name string) string { return namespaceOf(queue).SlotKey(queue, name) }

// ParkedKey is our own index of the jobs in one of our states: ZSET id → unix milliseconds of
// when they entered it. asynq's archive would drop all but 10,000 of the failed ones.
func ParkedKey(queue, state string) string { return ours(queue, state) }

// FailedKey is the index of failed jobs.
func FailedKey(queue string) string { return ParkedKey(queue, StateFailed) }

// HeldKey is the index of all held jobs: ZSET id → unix milliseconds, with a fraction, of
// when they left the pending list.
func HeldKey(queue string) string { return ParkedKey(queue, StateHeld) }

// HeldJobsKey is the ZSET of the held jobs of one key in their order: id → unix
// microseconds of when they left the pending list.
func HeldJobsKey(queue, key string) string { return ours(queue, "held:"+key) }

// HeldIndexKey is the ZSET of the keys that have held jobs: key → unix milliseconds from
// which on a worker may ask for it again; InTurns for keys of TurnsKey.
func HeldIndexKey(queue string) string { return ours(queue, "held_keys") }

// TurnsKey is the ZSET of the keys that take turns, "" for jobs without one, by the virtual time of their
// next job.
func TurnsKey(queue string) string { return ours(queue, "turns") }

// KeyedKey exists if a job with a key has been enqueued.
func KeyedKey(queue string) string { return ours(queue, "keyed") }

// InTurns is in HeldIndexKey for keys that take turns; later than each time.
const InTurns = 9e15 // as in prelude.lua and stats.lua

// DueKey is the ZSET of the ids in Scheduled and Retry by when they are due, unix
// milliseconds.
func DueKey(queue string) string { return ours(queue, "due") }

// FirstDueKey is the ZSET of the unfinished ids that have been pending before, by when they first were,
// unix milliseconds: rescheduled, retried, recovered and resumed jobs. Ids in flight are among them.
func FirstDueKey(queue string) string { return ours(queue, "first_due") }

// DeferredKey is the ZSET of the ids in Scheduled that a breaker, by its name, deferred: by
// when they are due, unix milliseconds.
func DeferredKey(queue, breaker string) string { return ours(queue, DeferredPrefix+breaker) }

// DeferredPrefix begins the name of each DeferredKey.
const DeferredPrefix = "deferred:"

// ExpiryKey is the ZSET of the waiting ids with an expiry, by that, unix milliseconds. Ids in
// flight and finished ones are not in it, but an older version may have left some there,
// until their time comes.
func ExpiryKey(queue string) string { return ours(queue, "expiry") }

// BatchKey is the ZSET of the ids of a batch by when they were created, unix
// milliseconds.
func BatchKey(queue, batch string) string { return ours(queue, "batch:"+batch) }

// BatchesKey is the ZSET of the batches that have jobs in the queue, by when the last
// one was enqueued, unix milliseconds.
func BatchesKey(queue string) string { return ours(queue, "batches") }

// TombstonesKey counts the ids in the pending list whose jobs are not pending.
func TombstonesKey(queue string) string { return ours(queue, "tombstones") }

// ReplaceKey is the HASH of the newest job of each replace-key, by "<owner> <replace-key>".
func ReplaceKey(queue string) string { return ours(queue, "replace") }

// ActionsKey is the SET of the ids in flight with a requested action.
func ActionsKey(queue string) string { return ours(queue, "actions") }

// ChildrenKey is the SET of a job's children, as "<queue> <id>".
func ChildrenKey(queue, id string) string { return ours(queue, "children:"+id) }

// OutboxKey is the ZSET of the finished ids whose children are not released or cancelled yet.
func OutboxKey(queue string) string { return ours(queue, "outbox") }

// EventsKey is the stream of terminal events. It exists only while it has subscribers; see
// WantEvents.
func EventsKey(queue string) string { return ours(queue, "ends") }

// EventsWantedKey exists while a process of ours subscribes to the stream.
func EventsWantedKey(queue string) string { return ours(queue, "ends:wanted") }

// EventsRelayedKey is the id of the last entry whose callbacks have been made.
func EventsRelayedKey(queue string) string { return ours(queue, "ends:relayed") }

// EventsRelayKey is the lease of the relay, which makes the callbacks.
func EventsRelayKey(queue string) string { return ours(queue, "ends:relay") }

// MinutesKey is the HASH of a destination's per-minute statistics of one hour. It is in the
// slot of the destination's default queue.
func (n Namespace) MinutesKey(destination string, hour int64) string {
	return ours(n.Queue(destination, Default), "minutes:"+strconv.FormatInt(hour, 10))
}

// callsKey is the HASH of how long the calls of a destination took that ended in the hour of an instant, in the slot
// of MinutesKey.
func (n Namespace) callsKey(destination string, at time.Time) string {
	return ours(n.Queue(destination, Default), "calls:"+strconv.FormatInt(at.Unix()/3600, 10))
}

// errorsKey is the HASH of the errors that attempts of a destination ended with in the hour of an instant, in the slot
// of MinutesKey.
func (n Namespace) errorsKey(destination string, at time.Time) string {
	return ours(n.Queue(destination, Default), "errors:"+strconv.FormatInt(at.Unix()/3600, 10))
}

// ActionsChannel notifies workers of the action requested of a running job: "<queue> <id>
// <action>". All databases of a Redis share it: the job's hash decides.
func (n Namespace) ActionsChannel() string { return n.Key("actions") }

// EventsChannel notifies subscribers of events that a queue's stream has more ("<queue>"), or
// that a breaker or the pause of a destination has changed ("<destination>").
func (n Namespace) EventsChannel() string { return n.Key("events") }

// EventsAnnounced is for how long after such a message of a queue there is no other one.
const EventsAnnounced = 250 * time.Millisecond // as in prelude.lua

// WakeChannel notifies workers that a queue has ready jobs ("<queue>"), or that they are to check
// it after a time in milliseconds ("<queue> <ms>").
func (n Namespace) WakeChannel() string { return n.Key("wake") }
