package breaker

import (
	"sync"
	"time"
)

// redisClock follows Redis's clock by this process's monotonic one, from reply to reply: what ended here has an
// instant there that other instances understand, and that keeps the order of what ended in this process. It also
// notices when Redis's clock was set: a lease that has ended by that clock may belong to a call that still runs. See
// over in metering.lua.
type redisClock struct {
	born time.Time

	mu     sync.Mutex
	ahead  int64 // µs from the time since born to Redis's clock
	steady int64 // since when, µs on Redis's clock, both have agreed within maxStep; 0: there was no reply yet
	then   int64 // ahead at that time
}

// maxStep is how far Redis's clock may move away from this process's without having been set.
const maxStep = 2 * time.Second

func newRedisClock(born time.Time) *redisClock {
	return &redisClock{born: born, ahead: born.UnixMicro()}
}

// observe takes the time of a reply, µs, which Redis read between two instants of this process. What is known stays as
// long as it agrees.
func (k *redisClock) observe(now int64, asked, received time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = min(max(k.ahead, now-received.Sub(k.born).Microseconds()), now-asked.Sub(k.born).Microseconds())
	if k.steady == 0 || max(k.ahead-k.then, k.then-k.ahead) > maxStep.Microseconds() {
		k.steady, k.then = now, k.ahead
	}
}

// at is Redis's clock at an instant, µs.
func (k *redisClock) at(local time.Time) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ahead + local.Sub(k.born).Microseconds()
}

// watch is what over in metering.lua takes of a script that is run at an instant, ms; 0 and 0: nothing is known yet.
func (k *redisClock) watch(local time.Time) (steady, by int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.steady == 0 {
		return 0, 0
	}
	return (k.steady + 999) / 1000, (k.ahead + (local.Sub(k.born) + maxStep).Microseconds()) / 1000
}
