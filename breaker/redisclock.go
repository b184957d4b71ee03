package breaker

import (
	"sync"
	"time"
)

// redisClock follows Redis's clock by this process's monotonic one, from reply to reply: what ended here has an instant
// there that other instances understand, and that keeps the order of what ended in this process.
type redisClock struct {
	born time.Time

	mu    sync.Mutex
	ahead int64 // µs from the time since born to Redis's clock
}

func newRedisClock(born time.Time) *redisClock {
	return &redisClock{born: born, ahead: born.UnixMicro()}
}

// observe takes the time of a reply, µs, which Redis read between two instants of this process. What is known stays as
// long as it agrees.
func (k *redisClock) observe(now int64, asked, received time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ahead = min(max(k.ahead, now-received.Sub(k.born).Microseconds()), now-asked.Sub(k.born).Microseconds())
}

// at is Redis's clock at an instant, µs.
func (k *redisClock) at(local time.Time) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ahead + local.Sub(k.born).Microseconds()
}
