package access

import (
	"net/netip"
	"sync"
	"time"
)

// An address may send wrongBurst wrong tokens at once, and then one each wrongEvery.
const (
	wrongBurst = 10
	wrongEvery = 6 * time.Second
	// maxAddresses bounds the addresses that are remembered; what comes on top shares
	// one account.
	maxAddresses = 10_000
)

// limiter counts wrong tokens by address. Its zero value with a clock is ready.
type limiter struct {
	now clock

	mu    sync.Mutex
	until map[netip.Prefix]time.Time // when the address has all of its burst again
	swept time.Time
}

// count counts a wrong token. after is 0, or when the address may send the next one;
// first is true if it had all of its burst.
func (l *limiter) count(address netip.Prefix) (after time.Duration, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.until == nil {
		l.until = map[netip.Prefix]time.Time{}
	}
	until, found := l.until[address]
	if !found && len(l.until) >= maxAddresses {
		l.sweep(now)
		if len(l.until) >= maxAddresses {
			address = netip.Prefix{}
			until = l.until[address]
		}
	}
	first = !until.After(now)
	if first {
		until = now
	}
	if over := until.Add(wrongEvery).Sub(now) - wrongBurst*wrongEvery; over > 0 {
		return over, false // what is refused does not make it longer
	}
	l.until[address] = until.Add(wrongEvery)
	return 0, first
}

// sweep forgets addresses that have all of their burst, once a second at most. The caller holds mu.
func (l *limiter) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for address, until := range l.until {
		if !until.After(now) {
			delete(l.until, address)
		}
	}
}
