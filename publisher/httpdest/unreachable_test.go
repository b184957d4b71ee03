package httpdest_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/test/testkit/fakehttp"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

// What never left is told apart from what may have been sent.
func TestCallsThatNeverLeft(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	hangUp := rawServer(t, func(net.Conn, int, int) bool { return false })
	blackHole := func(ctx context.Context, _, _ string) (net.Conn, error) {
		select { // the transport dials on after the request has given up
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return nil, context.Canceled
	}
	for _, tc := range []struct {
		name string
		o    httpdest.Options
		left bool
	}{
		{"connection refused", httpdest.Options{URL: fakehttp.ClosedPort(t)}, false},
		{"no such host", httpdest.Options{URL: "http://api.invalid"}, false},
		{"certificate not trusted", httpdest.Options{URL: untrusted.URL}, false},
		{"dead proxy", httpdest.Options{URL: "https://api.invalid", Transport: viaProxy(fakehttp.ClosedPort(t))}, false},
		{"no connection in time", httpdest.Options{URL: "http://api.invalid", Transport: &http.Transport{DialContext: blackHole}}, false},
		{"hung up after the request", httpdest.Options{URL: hangUp}, true},
		{"a transport of its own fails", httpdest.Options{URL: "http://api.invalid", Transport: failing{errors.New("lost")}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if tc.name == "no connection in time" {
				timeout = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			err := newHTTP(t, tc.o).Publish(ctx, aJob(jobs.Request{}))
			if _, unreachable := errors.AsType[*jobs.UnreachableError](err); err == nil || unreachable == tc.left {
				t.Errorf("unreachable %v: %v", unreachable, err)
			}
		})
	}
}

func viaProxy(proxy string) http.RoundTripper {
	t := &http.Transport{}
	t.Proxy = func(r *http.Request) (*url.URL, error) { return url.Parse(proxy) }
	return t
}

type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// An expired certificate of the API is a reason of its own: who has to act, and since when.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2021, 2, 3, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	err = newHTTP(t, httpdest.Options{URL: server.URL}).Publish(t.Context(), aJob(jobs.Request{}))
	const want = "the API's TLS certificate has expired or is not valid yet (2020-01-01 to 2021-02-03): its owner has to renew it, or this machine's clock is wrong"
	if _, unreachable := errors.AsType[*jobs.UnreachableError](err); !unreachable || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
