package breaker

import (
	"sync"
	"time"
)

// owners finds out whose the limits are that the answers to calls of keys announce: what is left of everyone's limit falls
// with the calls of other keys, what is left of a key's does not. It is of one instance. Calls of other instances make more
// of a limit fall: only what falls by less than an eighth of the other keys' calls is the key's.
type owners struct {
	mu     sync.Mutex
	limits map[announcedLimit]*announcements
}

type announcedLimit struct {
	name  string
	limit int
}

type announcements struct {
	ends    time.Time // of the window
	answers int       // in it
	whose   int       // above 0: everyone's, below: the key's
	first   left
	keys    map[string]left
}

// left is what an answer left of a limit, after a number of answers in the window; the key has had its own since.
type left struct{ calls, answers, own int }

const (
	mostAnnounced = 8 // limits that are compared
	enoughOthers  = 4 // answers to other keys that show something,
	enoughShown   = 3 // and so often, in sum
)

// scope is whose the limit is that an answer to a call of a key announces; "" is not known.
func (a *owners) scope(key string, b *Budget, refused bool, now time.Time) Scope {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := announcedLimit{b.Name, b.Limit}
	t := a.limits[id]
	if t == nil {
		if a.limits == nil || len(a.limits) == mostAnnounced {
			a.limits = map[announcedLimit]*announcements{}
		}
		t = &announcements{}
		a.limits[id] = t
	}
	switch ends := now.Add(b.Reset); {
	case refused: // it takes nothing
	case ends.Sub(t.ends).Abs() < sameWindow:
		t.note(key, b.Remaining)
	case ends.Before(t.ends): // two windows at once
		t.whose = max(t.whose-1, -2*enoughShown)
	default:
		t.ends, t.answers, t.keys = ends, 1, map[string]left{key: {b.Remaining, 1, 0}}
		t.first = t.keys[key]
	}
	switch {
	case t.whose >= enoughShown:
		return ScopeGlobal
	case t.whose <= -enoughShown:
		return ScopeUser
	}
	return ""
}

// sameWindow is by how much two announcements of one reset differ at most.
const sameWindow = 2 * time.Second

func (t *announcements) note(key string, calls int) {
	t.answers++
	last, ok := t.keys[key]
	if !ok {
		last = t.first
	}
	last.own++
	others, fell := t.answers-last.answers-last.own, last.calls-calls-last.own
	if others >= enoughOthers {
		switch {
		case 2*fell >= others:
			t.whose = min(t.whose+1, 2*enoughShown)
		case 8*fell <= others:
			t.whose = max(t.whose-1, -2*enoughShown)
		}
		last = left{calls, t.answers, 0}
	}
	if t.keys[key] = last; len(t.keys) > maxAccepted {
		clear(t.keys)
		t.first = left{calls, t.answers, 0}
	}
}
