// Package breaker is a circuit breaker for rate limits. All processes share its state through
// Redis: when an API answers one process "too many requests", none calls it again until the
// cooldown is over. Then one call of the whole fleet, the probe, tests the API.
//
// # Usage
//
// Each process makes a [Breaker] for a destination, acquires a permit before each call, and
// reports the call's outcome. No lock is held during the call.
//
//	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
//	…
//	permit, err := b.Allow(ctx)
//	if open, ok := errors.AsType[*breaker.OpenError](err); ok {
//		return later(open.RetryAfter)
//	}
//	…
//	_, err = permit.Report(ctx, breaker.RateLimited(retryAfter)) // or Success, Failure, Neutral
//
// Report every permit, or release it if no call was made. [Breaker.Do] does both around a
// function, package breakerhttp for an HTTP client. [Breaker.Wait] waits for a permit. Package
// hint reads limits from the headers of answers. Operators use the methods
// of [DefaultNamespace], such as [Namespace.Read] and [Namespace.Trip], which need no Breaker.
//
// # States
//
// CLOSED permits every call. FailureThreshold rate-limited answers in a row open the breaker;
// one that says how long to wait opens it at once. OPEN permits none during the cooldown, or
// for as long as the API said. HALF_OPEN permits the probe: its success closes the breaker, a
// rate-limited answer opens it again, after a failure the next probe follows. After an incident
// comes a slow start: 1, 2, 4 … calls may be in flight.
//
// The breaker of a key ([Breaker.Key]), such as a user, stands under the destination's. A call
// under a key needs a permit of both. A low budget of the API ([Outcome.WithBudget]) and a
// configured rate ([Options.Rate]) limit calls in any state: [OpenError.Cause] says which.
//
// # Guarantees
//
// Each change is stored by one atomic script in Redis and has a generation higher than all before it: a
// late message or report never replaces a newer state. Only Redis's clock counts. A success or
// failure in CLOSED costs no Redis command. While Redis is away the last known state holds: no
// probe is made, nor any call where a limit is declared or announced. Calls of a slow start are made, unless
// [Options.FailClosed] is set. [Breaker.Allow] returns [ErrUnavailable] instead of a permit. Lost data (FLUSHALL, a
// failover) means CLOSED.
//
// A nil context panics, as in the standard library.
//
// docs/breaker.md has the costs, the limits and the behaviour in outages.
package breaker
