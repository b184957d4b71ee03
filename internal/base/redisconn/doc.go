// Package redisconn is the one place that builds clients of Redis. [Parse]
// reads the forms of REDIS_URL, [Open] makes a client with bounded timeouts,
// and [Wait] waits for Redis at start and refuses servers that will not do.
//
// No error, log line or String of this package holds a password.
package redisconn
