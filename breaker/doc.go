// Package breaker is a circuit breaker for rate limits whose state all processes
// share through Redis: when an API says "too many requests" to one, none of them
// calls it again until the cooldown is over, and then one call of the whole fleet
// tests whether it answers.
//
// # Using it
//
// Every process makes a [Breaker] for a destination, acquires a permit before each call
// and reports how the call ended. Nothing is locked while the call runs.
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
// [Breaker.Do] does all of that around a function, package breakerhttp for an
// HTTP client, and package hint reads what the headers of an answer say.
// [Breaker.Wait] waits for the permit.
//
// # States
//
// CLOSED lets every call through. Each rate-limited answer counts; a success sets
// the count back, another failure (500, timeout) does neither. At FailureThreshold,
// or at once if the API said how long to wait, the breaker opens.
//
// OPEN lets nothing through until its time has come: Cooldown after the opening,
// multiplied by CooldownMultiplier for each probe that was rate limited, or the time
// that the API gave. Late answers of calls that had started before change nothing,
// except that a later hint of theirs extends the time.
//
// HALF_OPEN lets one call through, the probe, under a lease of ProbeTimeout. Its
// success closes the breaker; "rate limited" opens it again; if it fails
// otherwise, another one follows 1, 2, 4 … seconds after it started, at most a
// cooldown; if its process dies, not before the lease has ended.
//
// After closing comes a slow start: 1 call may be in flight, then 2, 4, 8 …, twice
// as many after each round of successes, until as many are allowed as the instances
// make at once (Options.MaxInFlight). A rate-limited answer in it opens again, and
// the cooldown grows. It falls back to Cooldown once the breaker has been CLOSED for
// as long as its last cooldown was.
//
// From opening to closing is one incident, with an id, a count of failed probes
// and one of calls wasted on the limit. Transitions and incidents are kept
// ([History], [Incidents]), and every instance gets the transitions
// ([Options.OnEvent]). People look with [Get] and [List] and act with [Trip],
// [Reset] and [ForceClosed]; those need no Breaker.
//
// # Budgets
//
// Many APIs say how many calls are left until when ([Outcome.WithBudget]). When that
// is at most twice what the instances can have in flight, Redis counts the calls, and
// one may start only if the least number said to be left in this window, less the
// calls in flight, is 1 or more. When none is left, the breaker opens until the
// window ends, ahead of the refusal.
//
// A limit that is known beforehand can be configured ([Options.Rate]); all instances
// keep it together. A call that is refused because of that, of a budget or of slow start
// gets an [*OpenError] whose State is Closed.
//
// # Keys
//
// [Breaker.Key] is the breaker of one owner of a limit, such as a user, under the
// destination's. A call under a key needs a permit of both, in one step. Its
// outcome counts for the key, or for the destination if the API says that the limit
// is that of all callers ([Outcome.WithScope]). An OPEN destination holds all of its keys.
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
// Each instance mirrors the state of what is not plainly CLOSED. All Breakers of a process
// that have the same client and RefreshInterval share one connection with a subscription,
// and one MGET per RefreshInterval, which finds what the subscription missed; on a Cluster
// one pipeline for each node. Each registers every ten seconds, with more than ten Breakers
// less often, about once a second in all. In CLOSED, Allow and the report of a
// success or a failure cost no Redis command, and without a key no allocation; in
// OPEN, Allow answers from the mirror. A rate-limited answer costs one script. A
// probe, and each call in slow start or while the budget is low, costs one to
// acquire and one to report; a configured rate costs one to acquire, always.
//
// "Consecutive" therefore is what an instance knew: a success resets the count if
// the mirror shows one. And after an opening those calls still start that the news
// has not reached: for as long as Redis's pub/sub takes, at most RefreshInterval.
// One lease is one call at a time only if a call cannot outlast ProbeTimeout.
//
// Every change is one script, atomic in Redis, and numbered above all before it,
// so that what is old never replaces what is new: neither a message that comes
// late, nor a report of a call that started before the last transition, nor
// anything from before the data was lost. A report that a client sends twice
// counts once. Lost data (FLUSHALL, a failover) means CLOSED.
//
// # When Redis is away
//
// The last known state holds. CLOSED goes on: each instance counts rate-limited
// answers for itself and opens its own view, and gives that up for Redis's truth when
// Redis is back. OPEN stays until its time; then calls fail with [ErrUnavailable],
// as no probe is made without a permit. Calls that Redis would have to count (slow
// start, a low budget, a rate) are made unmetered, and so are all if Redis has not been
// reached since New; with Options.FailClosed both fail with [ErrUnavailable].
//
// A report that Redis does not get is an error of [Permit.Report] and of nothing
// else: the call's own result stands.
package breaker
