package publisher

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// credentialsEvery is the interval of looks for changed credentials.
const credentialsEvery = time.Second

// watchCredentials closes breakers that are open because of refused credentials when the
// handler has others, until the destination is closed.
func (d *destination) watchCredentials() {
	h, ok := d.handler.(interface{ changedKeys() []string })
	if !ok {
		return
	}
	d.watching.Go(func() {
		tick := time.NewTicker(credentialsEvery)
		defer tick.Stop()
		again := map[string]bool{} // keys for which Redis was not reached
		for {
			select {
			case <-d.calls.Done():
				return
			case <-tick.C:
			}
			for _, key := range h.changedKeys() {
				again[key] = true
			}
			for key := range again {
				if d.credentialsChanged(key) {
					delete(again, key)
				}
			}
		}
	})
}

// credentialsChanged closes the breaker of a key with new credentials if it was open because of
// the old ones. It returns false if Redis was not reached.
func (d *destination) credentialsChanged(key string) bool {
	b := d.breaker.Key(key)
	if b.View().State == breaker.Closed {
		return true
	}
	ctx, cancel := context.WithTimeout(d.calls, commandTimeout)
	defer cancel()
	_, err := b.CredentialsRenewed(ctx)
	return err == nil
}
