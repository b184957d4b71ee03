package breaker

import "sync"

// origins distinguishes messages of this database from messages of other databases on the same server: all databases
// share the channels.
//
// Scripts keep an id beside the data they write, and messages carry it. The id cannot
// be the number of the database: neither a script nor every client knows that.
type origins struct {
	mu     sync.Mutex
	own    string         // as last read; "" while Redis has no data
	reads  int            // of own
	others map[string]int // reads there were when a message first carried the origin
}

// The kinds of origins of a message.
const (
	ownOrigin = iota
	newOrigin // of another database, or of this one since the last read
	otherOrigin
)

// mostOthers bounds how many origins are remembered.
const mostOthers = 100

// check returns the kind of a message's origin. The first one of an origin, and those
// that come before the read that it asks for has ended, are new.
func (o *origins) check(origin string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if origin == o.own {
		return ownOrigin
	}
	reads, known := o.others[origin]
	switch {
	case known && o.reads > reads+1: // one may have been under way
		return otherOrigin
	case known:
		return newOrigin
	case o.others == nil || len(o.others) >= mostOthers:
		o.others = map[string]int{}
	}
	o.others[origin] = o.reads
	return newOrigin
}

// changed reports whether an origin that was just read shows that the data was lost.
func (o *origins) changed(origin string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.own != "" && o.own != origin
}

// set notes the origin that was just read.
func (o *origins) set(origin string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.own = origin
	o.reads++
}
