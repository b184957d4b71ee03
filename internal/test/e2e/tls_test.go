package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/lab/fakeapi"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// Worker and commands reach a Redis that speaks TLS with a private CA and asks for
// a client's certificate.
func TestPublishingOverTLS(t *testing.T) {
	t.Parallel()
	s := redistest.StartTLS(t)
	f := newFleet(t, s, fakeapi.Options{})
	w := f.start()
	f.say("enqueue", "-d", f.dest, "--id", "by-command")
	ids := append(f.enqueue(20), "by-command")
	f.waitCompleted(ids, 20*time.Second)
	f.exactlyOnce(ids)
	checkLogs(t, []*worker{w})

	// Without the CA, or the certificate, one is told what is missing.
	for url, want := range map[string]string{
		"rediss://" + s.TLSAddr():                                "x509: certificate signed by unknown authority); check the host name, and ca_file in REDIS_URL",
		"rediss://" + s.TLSAddr() + "?ca_file=" + s.Certs.CAFile: "tls: certificate required); give cert_file and key_file in REDIS_URL",
	} {
		f.env["REDIS_URL"] = url
		for _, command := range [][]string{{"list"}, {"worker"}} {
			if _, stderr, code := f.tidegate(command...); code != 1 || !strings.HasSuffix(strings.TrimSpace(stderr), want) {
				t.Errorf("%s with %s: exit %d: %s", command, url, code, stderr)
			}
		}
	}
}
