package app

import "testing"

// What is said of an error to those without a token names no address, host or user.
func TestCauseNamesNoAddress(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"Redis: dial tcp 10.1.2.3:6379: connect: connection refused":                                                 "Redis: not reachable: connection refused",
		"Redis: lookup redis.internal on 10.0.0.10:53: no such host":                                                 "Redis: not reachable: no such host",
		"Redis: read tcp 10.1.2.3:1->10.1.2.4:2: i/o timeout":                                                        "Redis: not reachable: i/o timeout",
		"Redis: tls: failed to verify certificate: x509: certificate is valid for a.internal, not b.internal":        "Redis: not reachable: certificate",
		"Redis: NOPERM User worker has no permissions to run the 'evalsha' command":                                  "Redis: refuses: NOPERM",
		"Redis: run the script: READONLY You can't write against a read only replica.":                               "Redis: refuses: READONLY",
		"Redis: MOVED 3999 10.1.2.3:6379":                                                                            "Redis: not reachable; the worker's log says why",
		"calls do not leave this worker since 2026-01-02T03:04:05Z: dial tcp: lookup api.internal: no such host":     "calls do not leave this worker since 2026-01-02T03:04:05Z: not reachable: no such host",
		"calls do not leave this worker since 2026-01-02T03:04:05Z: proxyconnect tcp: something else of 10.0.0.1:80": "calls do not leave this worker since 2026-01-02T03:04:05Z: not reachable; the worker's log says why",
		"the worker starts": "the worker starts",
	} {
		if got := withCause(reason); got != want {
			t.Errorf("%q became %q, want %q", reason, got, want)
		}
	}
}
