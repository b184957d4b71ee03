package redistest

import (
	"fmt"
	"strings"
	"testing"
)

// NilIsRefused runs calls of exported functions of a package with a nil argument, by the function's name in
// messages, or it and, after a comma, more. Each call returns an error that has "nil", or panics with a text such as
// "jobs: apply: the spec is nil; …".
func NilIsRefused(t *testing.T, pkg string, calls map[string]func() error) {
	t.Helper()
	for name, call := range calls {
		function, _, _ := strings.Cut(name, ",")
		panicked, err := recovered(call)
		switch text, ok := panicked.(string); {
		case panicked == nil && (err == nil || !strings.Contains(err.Error(), "nil")):
			t.Errorf("%s: error %v, want one that says what is nil", name, err)
		case panicked != nil && (!ok || !strings.HasPrefix(text, pkg+": "+function+": ") || !strings.Contains(text, "nil")):
			t.Errorf("%s panics with %v, want a text that names the function, what is nil and what to pass", name, fmt.Sprint(panicked))
		}
	}
}

func recovered(call func() error) (panicked any, err error) {
	defer func() { panicked = recover() }()
	return nil, call()
}
