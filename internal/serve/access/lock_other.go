//go:build !unix || solaris || aix

package access

// lock does nothing where directories cannot be locked.
func lock(string) (unlock func(), err error) { return func() {}, nil }
