package redisconn

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	tests := []struct {
		url     string
		want    Target
		text    string
		useTLS  bool
		tlsName string
	}{
		{url: "redis://127.0.0.1:6379/0", want: Target{Kind: Single, Addrs: []string{"127.0.0.1:6379"}}, text: "127.0.0.1:6379"},
		{url: " REDIS://h ", want: Target{Kind: Single, Addrs: []string{"h:6379"}}, text: "h:6379"},
		{url: "redis://h/", want: Target{Kind: Single, Addrs: []string{"h:6379"}}, text: "h:6379"},
		{url: "redis://[::1]:7000/3?pool_size=5", want: Target{Kind: Single, Addrs: []string{"[::1]:7000"}, DB: 3, PoolSize: 5}, text: "[::1]:7000"},
		{url: "redis://[::1]?db=4", want: Target{Kind: Single, Addrs: []string{"[::1]:6379"}, DB: 4}, text: "[::1]:6379"},
		{url: "redis://:pw@h", want: Target{Kind: Single, Addrs: []string{"h:6379"}, password: "pw"}, text: "h:6379"},
		{url: "redis://us%40er:p%2Fw%25@d:x@h:1/1", want: Target{Kind: Single, Addrs: []string{"h:1"}, DB: 1, user: "us@er", password: "p/w%@d:x"}, text: "h:1"},
		{url: "rediss://:pw@h:6380/2?ca_file=" + certificates.CAFile, want: Target{Kind: Single, Addrs: []string{"h:6380"}, DB: 2, password: "pw"}, text: "h:6380", useTLS: true, tlsName: "h"},
		{url: "redis-socket:///run/redis.sock?db=1", want: Target{Kind: Socket, Addrs: []string{"/run/redis.sock"}, DB: 1}, text: "/run/redis.sock"},
		{url: "redis-socket://u:pw@/run/a%20b.sock", want: Target{Kind: Socket, Addrs: []string{"/run/a b.sock"}, user: "u", password: "pw"}, text: "/run/a b.sock"},
		{url: "redis-sentinel://h1:1,h2/5?master=main", want: Target{Kind: Sentinel, Addrs: []string{"h1:1", "h2:26379"}, DB: 5, MasterName: "main"}, text: "master main of Sentinel h1:1,h2:26379"},
		{url: "redis-sentinel://u:pw@h1?master=m&sentinel_username=su&sentinel_password=s%26p&tls=true", want: Target{Kind: Sentinel, Addrs: []string{"h1:26379"}, MasterName: "m", user: "u", password: "pw", sentinelUser: "su", sentinelPassword: "s&p"}, text: "master m of Sentinel h1:26379", useTLS: true},
		{url: "redis-cluster://h1:7000,h2:7001", want: Target{Kind: Cluster, Addrs: []string{"h1:7000", "h2:7001"}}, text: "Cluster h1:7000,h2:7001"},
		{url: "redis-cluster://:pw@h1/0?tls=1&ca_file=" + certificates.CAFile + "&pool_size=7", want: Target{Kind: Cluster, Addrs: []string{"h1:6379"}, password: "pw", PoolSize: 7}, text: "Cluster h1:6379", useTLS: true},
		{url: "embedded:", want: Target{Kind: Embedded}, text: "embedded"},
		{url: "embedded://", want: Target{Kind: Embedded}, text: "embedded"},
	}
	for _, tt := range tests {
		got, err := Parse(tt.url)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.url, err)
			continue
		}
		if diff := cmp.Diff(&tt.want, got, cmp.AllowUnexported(Target{}), cmpopts.IgnoreFields(Target{}, "TLS")); diff != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", tt.url, diff)
		}
		if got.String() != tt.text {
			t.Errorf("Parse(%q).String() = %q, want %q", tt.url, got.String(), tt.text)
		}
		if (got.TLS != nil) != tt.useTLS {
			t.Errorf("Parse(%q).TLS = %v", tt.url, got.TLS)
			continue
		}
		if tt.useTLS && (got.TLS.MinVersion != tls.VersionTLS12 || got.TLS.ServerName != tt.tlsName ||
			(got.TLS.RootCAs != nil) != strings.Contains(tt.url, "ca_file")) {
			t.Errorf("Parse(%q): TLS from %x, name %q, own CA %t", tt.url, got.TLS.MinVersion, got.TLS.ServerName, got.TLS.RootCAs != nil)
		}
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	certs := redistest.NewCertificates(t)
	noCert := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(noCert, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		form   = "does not start with a form of URL that Tidegate knows; start it with redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster://"
		encode = "has a character in the wrong place; percent-encode special characters in user and password: / as %2F, ? as %3F, # as %23, @ as %40, % as %25"
		addr   = "has an address that is not a host and a port; write HOST, HOST:6379 or [IPV6]:6379"
	)
	tests := []struct{ url, want string }{
		{"", form},
		{"hunter2", form},
		{"127.0.0.1:6379", form},
		{"http://h", form},
		{"redis:h", form},
		{"unix:///run/redis.sock", form},
		{"redis://", "names no host; write redis://HOST:6379"},
		{"redis:///0", "names no host; write redis://HOST:6379"},
		{"redis://h:hunter2", addr},
		{"redis://h:0", addr},
		{"redis://h:70000", addr},
		{"redis://::1", addr},
		{"redis://h /0", addr},
		{"redis-cluster://h1,,h2", addr},
		{"redis://h1,h2", "names several hosts; use redis-sentinel:// or redis-cluster:// for several"},
		{"redis://hunter2@h", "has no password before the @; write redis://:PASSWORD@… or redis://USER:PASSWORD@…"},
		{"redis://user:@h", "has no password before the @; write redis://:PASSWORD@… or redis://USER:PASSWORD@…"},
		{"redis://:hunter2%@h", "has a % in user or password that is not percent-encoding; write a % as %25"},
		{"redis://:hun/ter2@h/0", encode},
		{"redis://:hun?ter2@h/0", encode},
		{"redis://:hun#ter2@h/0", encode},
		{"redis://h/hunter2", "has a database that is not a number; use a number, mostly 0 to 15"},
		{"redis://h/-1", "has a database that is not a number; use a number, mostly 0 to 15"},
		{"redis://h/0?db=x", "has a database that is not a number; use a number, mostly 0 to 15"},
		{"redis-cluster://h/1", "names a database other than 0, and Redis Cluster has no other; take the number out"},
		{"redis://h?master=m", "has an unknown query parameter; known here: db, pool_size"},
		{"redis://h?hunter2=1", "has an unknown query parameter; known here: db, pool_size"},
		{"redis://h?db=1&db=2", "has the query parameter db twice; give it once"},
		{"redis://h?db=%zz", "has query parameters that cannot be read; percent-encode special characters in its values"},
		{"redis://h?pool_size=0", "has a pool_size out of range; use a number from 1 to 10000"},
		{"redis://h?pool_size=10001", "has a pool_size out of range; use a number from 1 to 10000"},
		{"redis-cluster://h?tls=yes", "has a tls that is neither true nor false; use tls=true or tls=false"},
		{"redis-cluster://h?cert_file=/x&key_file=/y", "has a cert_file and no TLS; add tls=true"},
		{"rediss://h?cert_file=" + certs.ClientCertFile, "has only one of cert_file and key_file; give cert_file and key_file"},
		{"rediss://h?key_file=" + certs.ClientKeyFile, "has only one of cert_file and key_file; give cert_file and key_file"},
		{"rediss://h?cert_file=/nowhere/c.pem&key_file=" + certs.ClientKeyFile, "has a cert_file that cannot be read: open /nowhere/c.pem: no such file or directory; check the path and its permissions"},
		{"rediss://h?cert_file=" + certs.ClientCertFile + "&key_file=/nowhere/k.pem", "has a key_file that cannot be read: open /nowhere/k.pem: no such file or directory; check the path and its permissions"},
		{
			"rediss://h?cert_file=" + certs.ClientCertFile + "&key_file=" + certs.ServerKeyFile,
			"has a cert_file and a key_file that do not go together: tls: private key does not match public key; give a certificate and its key in PEM form",
		},
		{"redis-cluster://h?ca_file=/x", "has a ca_file and no TLS; add tls=true"},
		{"rediss://h?ca_file=/nowhere/ca.pem", "has a ca_file that cannot be read: open /nowhere/ca.pem: no such file or directory; check the path and its permissions"},
		{"rediss://h?ca_file=" + noCert, "has a ca_file without a certificate: " + noCert + "; give certificates in PEM form"},
		{"redis-sentinel://h1,h2/0", "does not name the master; add ?master=NAME, the name that the Sentinels know the master by"},
		{"redis-sentinel://h?master=m&sentinel_username=u", "has a sentinel_username and no sentinel_password; add sentinel_password"},
		{"redis-socket://h/run/redis.sock", "does not hold the absolute path of a socket; write redis-socket:///run/redis/redis.sock"},
		{"redis-socket://", "does not hold the absolute path of a socket; write redis-socket:///run/redis/redis.sock"},
	}
	for _, tt := range tests {
		target, err := Parse(tt.url)
		if err == nil {
			t.Errorf("Parse(%q) = %v, no error", tt.url, target)
			continue
		}
		if want := "redisconn: parse REDIS_URL: " + tt.want; err.Error() != want {
			t.Errorf("Parse(%q):\n got %s\nwant %s", tt.url, err, want)
		}
		var bad *URLError
		if !errors.As(err, &bad) || bad.Problem+"; "+bad.Fix != tt.want {
			t.Errorf("Parse(%q): %T %v", tt.url, err, bad)
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2@") {
			t.Errorf("Parse(%q) shows a password: %v", tt.url, err)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"redis://h:6379/0":            "redis://h:6379/0",
		"redis://:hunter2@h/0?db=1":   "redis://:[redacted]@h/0?db=1",
		"redis://u:hunter2@h":         "redis://u:[redacted]@h",
		"redis://hunter2@h":           "redis://[redacted]",
		"redis://:hunter2/0":          "redis://[redacted]",
		"redis://h/hunter2":           "redis://[redacted]",
		"redis://h/0?hunter2":         "redis://h/0?[redacted]",
		"redis://:a@hunter2@h":        "redis://:[redacted]@h",
		"rediss://u:hunter2@h:x/?a=b": "rediss://[redacted]",
		"redis-sentinel://u:hunter2@h1,h2/0?sentinel_password=hunter2&master=m&pool_size=3": "redis-sentinel://u:[redacted]@h1,h2/0?sentinel_password=[redacted]&master=m&pool_size=3",
		"redis-socket:///run/redis.sock": "redis-socket:///run/redis.sock",
		"redis://:hunter2/@h":            "redis://[redacted]",
		"redis://:hunter2#@h":            "redis://[redacted]",
		"http://hunter2":                 "[redacted]",
		"hunter2":                        "[redacted]",
		"":                               "[redacted]",
		"embedded://":                    "embedded:",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTargetHidesCredentials(t *testing.T) {
	t.Parallel()
	target, err := Parse("redis-sentinel://u:hunter2@h?master=m&sentinel_password=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(target), fmt.Sprintf("%+v %#v", target, target), fmt.Sprintf("%+v %#v", *target, *target), string(document)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("shows a password: %s", text)
		}
	}
}

func TestUniversalOptions(t *testing.T) {
	t.Parallel()
	target, err := Parse("redis://u:pw@h:1/2?pool_size=4")
	if err != nil {
		t.Fatal(err)
	}
	want := &redis.UniversalOptions{
		Addrs: []string{"h:1"}, DB: 2, Username: "u", Password: "pw",
		ClientName: "tidegate", DialTimeout: 2 * time.Second, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second,
		PoolSize: 4, PipelinePoolSize: -1, MaxIdleConns: 8, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1,
		DisableIdentity: true, IdentitySuffix: "h:1",
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if diff := cmp.Diff(want, target.Universal(Options{PoolSize: 9})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	target.PoolSize = 0
	want.ClientName, want.DialTimeout, want.ReadTimeout, want.WriteTimeout, want.PoolSize = "other", 1, 2, 3, 9
	got := target.Universal(Options{ClientName: "other", DialTimeout: 1, ReadTimeout: 2, WriteTimeout: 3, PoolSize: 9})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"redis://:pw@h/0", "redis-sentinel://a,b/0?master=m", "redis-socket:///x", "redis-cluster://[::1]:1?tls=true"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "ca_file") {
			return // would read files
		}
		if target, err := Parse(raw); (target == nil) == (err == nil) {
			t.Fatalf("Parse(%q) = %v, %v", raw, target, err)
		}
		const password = "hunter2hunter2"
		_, err := Parse("redis://:" + password + raw)
		if err != nil && strings.Contains(err.Error(), password) {
			t.Fatalf("error shows the password: %v", err)
		}
		if text := Redact("redis://:" + password + raw); strings.Contains(text, password) {
			t.Fatalf("Redact shows the password: %s", text)
		}
	})
}
