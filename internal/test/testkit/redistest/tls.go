package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Certificates are PEM files of a private CA, and of keys with a certificate of it for
// a server at 127.0.0.1 and for a client. They are valid for an hour.
type Certificates struct {
	CAFile                        string
	ServerCertFile, ServerKeyFile string
	ClientCertFile, ClientKeyFile string
}

// NewCertificates makes new ones.
func NewCertificates(t testing.TB) Certificates {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	c := Certificates{path("ca.pem"), path("server.pem"), path("server.key"), path("client.pem"), path("client.key")}
	caKey := newKey(t)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "private CA"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	writeCertificate(t, c.CAFile, ca, ca, caKey, caKey)
	leaf := func(serial int64, name string, usage ...x509.ExtKeyUsage) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage,
		}
	}
	key := newKey(t)
	// A server of a Cluster or a replica is a client of others.
	writeCertificate(t, c.ServerCertFile, leaf(2, "redis", x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth), ca, key, caKey)
	writeKey(t, c.ServerKeyFile, key)
	key = newKey(t)
	writeCertificate(t, c.ClientCertFile, leaf(3, "client", x509.ExtKeyUsageClientAuth), ca, key, caKey)
	writeKey(t, c.ClientKeyFile, key)
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// writeCertificate writes the certificate of a key, signed with the issuer's.
func writeCertificate(t testing.TB, path string, cert, issuer *x509.Certificate, key, issuerKey *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, issuer, &key.PublicKey, issuerKey)
	writePEM(t, path, "CERTIFICATE", der, err)
}

func writeKey(t testing.TB, path string, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	writePEM(t, path, "EC PRIVATE KEY", der, err)
}

func writePEM(t testing.TB, path, kind string, der []byte, err error) {
	t.Helper()
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TLS is a server that takes encrypted connections on a port of its own, of clients
// that show a certificate. The test itself uses the other port, without TLS.
type TLS struct {
	*Server
	// Certs of the server and its clients.
	Certs Certificates
	port  int
}

// StartTLS is [Start] for a server with TLS.
func StartTLS(t testing.TB, opts ...Option) *TLS {
	t.Helper()
	s := &TLS{Certs: NewCertificates(t)}
	for range portTries {
		port := randomPort()
		held, ok := reserve(port)
		if !ok {
			continue
		}
		t.Cleanup(func() { _ = held.Close() })
		s.port = port
		s.Server = Start(t, append(opts, WithArgs("--tls-port", strconv.Itoa(port), "--tls-ca-cert-file", s.Certs.CAFile,
			"--tls-cert-file", s.Certs.ServerCertFile, "--tls-key-file", s.Certs.ServerKeyFile))...)
		return s
	}
	t.Fatalf("redistest: no free port after %d tries", portTries)
	return nil
}

// TLSAddr returns host and port for connections with TLS.
func (s *TLS) TLSAddr() string { return loopback(s.port) }

// URL returns the address for connections with TLS in the form of REDIS_URL, the
// client's certificate included.
func (s *TLS) URL() string {
	u := url.URL{Scheme: "rediss", Host: s.TLSAddr(), Path: "/0", RawQuery: url.Values{
		"ca_file": {s.Certs.CAFile}, "cert_file": {s.Certs.ClientCertFile}, "key_file": {s.Certs.ClientKeyFile},
	}.Encode()}
	return u.String()
}
