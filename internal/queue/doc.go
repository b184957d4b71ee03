// Package queue is the room of jobs in Redis, from the enqueue to the end: the store with every key and script, the engine of
// a worker, asynq's server on top of it, repairs after crashes, and forecasts of starts.
//
// It knows breakers, for forecasts only, and nothing of HTTP, configuration or people. Packages jobs and publisher are its
// way out: others reach jobs through them, or through the store's verbs.
package queue
