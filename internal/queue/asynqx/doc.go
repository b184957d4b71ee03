// Package asynqx makes asynq's Server run on internal/queue/engine.
//
// asynq's broker is internal and cannot be replaced. But a Server takes any
// redis.UniversalClient, and speaks to Redis through a fixed set of Lua scripts, by their
// SHA-1. [Client] is such a client: it answers these scripts by a verb of the engine or of
// internal/queue/store, and passes on all other commands. The caller's own client is unchanged.
//
//	asynq's script                  verb                 why it is replaced
//	dequeueCmd                      Engine.Next          fetches many jobs at once, waits at
//	                                                     the gate, holds jobs of closed keys;
//	                                                     asynq's takes one from an open queue,
//	                                                     and polls
//	doneCmd, markAsCompleteCmd,     none                 the handler has settled its jobs: in
//	retryCmd, archiveCmd,                                round trips that jobs share with each
//	requeueCmd                                           other and with the next fetch, and
//	                                                     repeated until Redis answers
//	forwardCmd                      none                 the engine moves due jobs by itself, in
//	                                                     milliseconds of Redis's clock
//	listLeaseExpiredCmd             Engine.RecoverLapsed goes by Redis's clock, counts crashes,
//	                                                     spreads what comes back
//	deleteExpiredCompletedTasksCmd  Engine.Purge         more belongs to a job than its hash
//	writeServerStateCmd             passed on            without tasks; its result is a heartbeat
//	clearServerStateCmd             passed on
//	reclaimStateAggregationSetsCmd  passed on            groups are not used
//
// Besides scripts, ZADD XX, asynq's extension of leases by the worker's clock, is answered
// and not sent (Engine.ExtendLeases does it), and the subscription to cancelled tasks is left to
// the engine's worker.
//
// A task of asynq's is a call of the Server's handler, not a job: it has a number and no payload. The
// handler takes a job of the engine, settles it, may run others after it, and then returns nil to
// asynq. asynq's retry limits, its archive, which drops all but 10,000 tasks, and its times in whole
// seconds are not used.
//
// A contract test compares the SHA-1 of each of these scripts with asynq's
// source. An unknown script stops the Server; [CheckVersion] refuses other versions.
package asynqx
