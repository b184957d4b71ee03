package publisher

import (
	"context"
	"time"

	"github.com/tidegate/tidegate/breaker"
)

// credentialsEvery is the interval of checks for changed credentials.
const credentialsEvery = time.Second

// credentialsHandler is a handler whose credentials can change: see httpdest.Destination.
type credentialsHandler interface {
	CredentialsCanChange() bool
	ChangedKeys() []string
	CredentialsOf(key string) string
}

// watchCredentials closes breakers that are open because of refused credentials when the
// handler has others, until the destination is closed.
func (d *destination) watchCredentials() {
	h, ok := d.handler.(credentialsHandler)
	if !ok {
		return
	}
	d.watching.Go(func() {
		tick := time.Tick(credentialsEvery)
		again := map[string]bool{} // keys for which Redis was not reached
		first := true
		for {
			if first {
				changed, ok := d.otherCredentials(h)
				first = !ok
				for _, key := range changed {
					again[key] = true
				}
			}
			if !first && len(again) == 0 && !h.CredentialsCanChange() {
				return
			}
			select {
			case <-d.calls.Done():
				return
			case <-tick:
			}
			for _, key := range h.ChangedKeys() {
				again[key] = true
			}
			for key := range again {
				if d.credentialsChanged(key, h.CredentialsOf(key)) {
					delete(again, key)
				}
			}
		}
	})
}

// otherCredentials returns the keys whose breakers are open because the API refused other credentials than this
// process has started with. It returns false if Redis was not reached.
func (d *destination) otherCredentials(h credentialsHandler) (keys []string, ok bool) {
	d.reading.Lock()
	defer d.reading.Unlock()
	ctx, cancel := context.WithTimeout(d.calls, commandTimeout)
	defer cancel()
	read, err := breaker.Namespace(d.o.Namespace).ReadOne(ctx, d.rdb, breaker.Query{Keys: true}, d.name)
	if err != nil {
		return nil, false
	}
	for _, s := range read.Breakers() {
		if s.State == breaker.Closed || s.Cause != breaker.CauseCredentials {
			continue
		}
		key := keyOf(s.Name)
		if id := h.CredentialsOf(key); id != "" && id != s.Credentials {
			keys = append(keys, key)
		}
	}
	return keys, true
}

// credentialsChanged closes the breaker of a key with new credentials if it was open because of
// others. It returns false if Redis was not reached.
func (d *destination) credentialsChanged(key, id string) bool {
	b := d.breaker.Key(key)
	if b.View().State == breaker.Closed {
		return true
	}
	ctx, cancel := context.WithTimeout(d.calls, commandTimeout)
	defer cancel()
	_, err := b.CredentialsRenewed(ctx, id)
	return err == nil
}
