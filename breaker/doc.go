// Package breaker is a circuit breaker for rate limits whose state all processes
// share through Redis: when an API says "too many requests" to one, none of them
// calls it again until the cooldown is over, and then one call of the whole fleet
// tests whether it answers.
//
// # Using it
//
// Every process makes a [Breaker] for a destination, asks it before each call and
// tells it how the call ended. Nothing is held or locked while the call runs.
//
//	b, err := breaker.New(ctx, rdb, breaker.Options{Destination: "deviantart"})
//	if err != nil {
//		return err
//	}
//	defer b.Close()
//
//	permit, err := b.Allow(ctx)
//	if open, ok := errors.AsType[*breaker.OpenError](err); ok {
//		return later(open.RetryAfter)
//	}
//	if err != nil {
//		return err
//	}
//	resp, err := call(ctx)
//	switch {
//	case err != nil:
//		_, err = permit.Report(ctx, breaker.Failure())
//	case resp.StatusCode == http.StatusTooManyRequests:
//		_, err = permit.Report(ctx, breaker.RateLimited(retryAfter(resp)))
//	default:
//		_, err = permit.Report(ctx, breaker.Success())
//	}
//
// Every permit must be reported, or released if no call was made with it.
//
// # States
//
// CLOSED lets every call through. Each rate-limited answer counts; a success sets
// the count back, another failure (500, timeout) does neither. At FailureThreshold,
// or at once if the API said how long to wait, the breaker opens.
//
// OPEN lets nothing through until its time has come: Cooldown after the opening,
// multiplied by CooldownMultiplier for each probe that failed, or the time that
// the API gave. Late answers of calls that had started before change nothing,
// except that a later hint of theirs extends the time.
//
// HALF_OPEN lets one call through, the probe, under a lease of ProbeTimeout. Its
// success closes the breaker; "rate limited" opens it again; if it fails
// otherwise, or its process dies, another probe follows: 1, 2, 4 … seconds after
// the one before started, at most a cooldown.
//
// From opening to closing is one incident, with an id, a count of failed probes
// and one of calls wasted on the limit. Transitions are kept ([History]) and told
// to every instance ([Options.OnEvent]). People look with [Get] and act with [Trip]
// and [Reset]; those need no Breaker.
//
// # Time
//
// Only Redis's clock counts. Instances learn how long is left and measure that
// with their own monotonic clock; a time that is needed on Redis's clock is
// given beside it. A Redis clock that jumps back makes nothing wait longer than
// it had to at the last change.
//
// # What it costs, and what it relies on
//
// Each instance mirrors the state: by a subscription, and by one read per
// RefreshInterval, which finds what the subscription missed. In CLOSED, Allow and
// the report of a success cost no Redis command and no allocation; in OPEN, Allow
// answers from the mirror. "Consecutive" therefore is what an instance knew: a
// success resets the count if the mirror shows one.
//
// Every change is one script, atomic in Redis, and numbered above all before it,
// so that what is old never replaces what is new: neither a message that comes
// late, nor a report of a call that started before the last transition, nor
// anything from before the data was lost. A report that a client sends twice
// counts once. Lost data (FLUSHALL, a failover) means CLOSED.
//
// While Redis is away the last known state holds: CLOSED goes on and counts for
// itself, OPEN stays until its time, and no probe is made without a permit.
package breaker
