package config

import (
	"errors"

	"github.com/tidegate/tidegate/internal/tokens"
)

// checkTokensFile reads a file of tokens as a worker will. Its errors name keys and
// never a token.
func (l *loader) checkTokensFile(name, path string) {
	all, info, err := tokens.Read(path)
	if err != nil {
		problems, ok := errors.AsType[tokens.Errors](err)
		if !ok {
			problems = tokens.Errors{{What: err.Error()}}
		}
		for _, p := range problems {
			l.found.fail(name, p.Fix, "file %q: %s", path, p.What)
		}
		return
	}
	if len(all) == 0 {
		l.found.warn(name, "file %q holds no token: every job with a key fails until it does", path)
	}
	if tokens.Exposed(info) {
		l.found.warn(name, "file %q can be read by others (mode %04o): chmod 600 it, or set defaultMode: 0400 where it is a Secret of Kubernetes", path, info.Mode().Perm())
	}
}
