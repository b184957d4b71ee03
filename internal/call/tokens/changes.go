package tokens

import (
	"maps"
	"slices"
	"sync"
)

// Changes collects the keys whose tokens have changed. The zero value has none.
type Changes struct {
	mu   sync.Mutex
	last map[string]string
	keys map[string]bool
}

// Add compares tokens with the tokens of the last call, and adds the keys whose token has changed.
func (c *Changes) Add(all map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[string]bool{}
	}
	for key, token := range all {
		if c.last[key] != token {
			c.keys[key] = true
		}
	}
	c.last = all
}

// Take returns the keys that were added since the last call.
func (c *Changes) Take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Collect(maps.Keys(c.keys))
	clear(c.keys)
	return out
}
