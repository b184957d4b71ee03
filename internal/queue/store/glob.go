package store

import (
	"path"
	"slices"
)

// MatchesGlob reports whether a name without a slash matches one of the globs of * and ?, or there are none.
func MatchesGlob(globs []string, name string) bool {
	return len(globs) == 0 || slices.ContainsFunc(globs, func(glob string) bool {
		ok, err := path.Match(glob, name)
		return ok && err == nil
	})
}
