// Package base is the room of small parts that know nothing of jobs: the Redis client and its pipelines, leases, secrets,
// texts, telemetry.
//
// They import nothing of ours but each other.
package base
