package cli

import (
	"slices"
	"strings"
)

// mostFreeKeys bounds the keys of a destination that are printed although they can be called.
const mostFreeKeys = 10

// keyCount bounds the lines of a table of destinations and keys, and counts the rest.
type keyCount struct {
	limit     int // of destinations, and of limited keys
	limited   int // keys that are printed
	hidden    int // limited keys that are not
	others    int // destinations that are not
	names     []string
	free, cut map[string]int // keys that can be called, and those of them that are not printed
}

func newKeyCount(limit int) *keyCount {
	return &keyCount{limit: limit, free: map[string]int{}, cut: map[string]int{}}
}

// destinations returns how many of n destinations are printed.
func (k *keyCount) destinations(n int) int {
	k.others = max(0, n-k.limit)
	return n - k.others
}

// shows counts a key of a destination, and reports whether it is printed.
func (k *keyCount) shows(destination string, limited bool) bool {
	switch {
	case limited && k.limited < k.limit:
		k.limited++
		return true
	case limited:
		k.hidden++
		return false
	case k.free[destination] < mostFreeKeys:
		k.free[destination]++
		return true
	}
	if k.cut[destination] == 0 {
		k.names = append(k.names, destination)
	}
	k.cut[destination]++
	return false
}

// rest returns lines about what is not printed. are words the keys that can be called; all is the flag that
// brings everything.
func (k *keyCount) rest(are, all string) string {
	var b strings.Builder
	if k.hidden > 0 {
		b.WriteString(plural(k.hidden, "other limited key", "other limited keys") + "; all: " + all + "\n")
	}
	for i, name := range slices.Sorted(slices.Values(k.names)) {
		if i == k.limit {
			break
		}
		b.WriteString(plural(k.cut[name], "other key", "other keys") + " of " + name + " " + are + "; all: " + all + "\n")
	}
	if k.others > 0 {
		b.WriteString(plural(k.others, "other destination", "other destinations") + "; all: " + all + "\n")
	}
	return b.String()
}
