package breaker

import (
	"sync"
	"time"
)

// owners finds out whether an announced limit belongs to each key or to all of them. Calls of other keys reduce what is left
// of a shared limit, and do not change what is left of a key's own. Each instance decides by the responses that it gets.
// Calls of other instances also reduce a shared limit, so a limit is the key's own only if it falls by less than an
// eighth of the other keys' calls.
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
	votes   int       // above 0 for a shared limit, below 0 for a limit of each key
	first   remaining
	keys    map[string]remaining
}

// remaining is a limit's announcement in one response: calls that are left, and how many responses the window had had by then.
// own counts the responses to the same key since.
type remaining struct{ calls, answers, own int }

const (
	maxAnnounced = 8 // limits that are compared
	minOthers    = 4 // responses to other keys before a key's response has a vote
	minVotes     = 3 // a lead that decides
)

// scope returns the scope of the limit that the response to a call of a key announces; "" if it is not known.
func (a *owners) scope(key string, b *Budget, refused bool, now time.Time) Scope {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := announcedLimit{b.Name, b.Limit}
	t := a.limits[id]
	if t == nil {
		if a.limits == nil || len(a.limits) == maxAnnounced {
			a.limits = map[announcedLimit]*announcements{}
		}
		t = &announcements{}
		a.limits[id] = t
	}
	switch ends := now.Add(b.Reset); {
	case refused: // a refused call uses up nothing
	case ends.Sub(t.ends).Abs() < sameWindow:
		t.note(key, b.Remaining)
	case ends.Before(t.ends): // two windows at once
		t.votes = max(t.votes-1, -2*minVotes)
	default:
		t.ends, t.answers, t.keys = ends, 1, map[string]remaining{key: {b.Remaining, 1, 0}}
		t.first = t.keys[key]
	}
	switch {
	case t.votes >= minVotes:
		return ScopeGlobal
	case t.votes <= -minVotes:
		return ScopeUser
	}
	return ""
}

// sameWindow bounds the difference between two announcements of the same reset.
const sameWindow = 2 * time.Second

func (t *announcements) note(key string, calls int) {
	t.answers++
	last, ok := t.keys[key]
	if !ok {
		last = t.first
	}
	last.own++
	others, fell := t.answers-last.answers-last.own, last.calls-calls-last.own
	if others >= minOthers {
		switch {
		case 2*fell >= others:
			t.votes = min(t.votes+1, 2*minVotes)
		case 8*fell <= others:
			t.votes = max(t.votes-1, -2*minVotes)
		}
		last = remaining{calls, t.answers, 0}
	}
	if t.keys[key] = last; len(t.keys) > maxAccepted {
		clear(t.keys)
		t.first = remaining{calls, t.answers, 0}
	}
}
