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

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

func TestParse(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	type options = redis.UniversalOptions
	tests := []struct {
		url     string
		kind    Kind
		want    options
		text    string
		useTLS  bool
		tlsName string
	}{
		{url: "redis://127.0.0.1:6379/0", want: options{Addrs: []string{"127.0.0.1:6379"}}, text: "127.0.0.1:6379"},
		{url: " REDIS://h ", want: options{Addrs: []string{"h:6379"}}, text: "h:6379"},
		{url: "redis://h/", want: options{Addrs: []string{"h:6379"}}, text: "h:6379"},
		{url: "redis://[::1]:7000/3?pool_size=5", want: options{Addrs: []string{"[::1]:7000"}, DB: 3, PoolSize: 5}, text: "[::1]:7000"},
		{url: "redis://[::1]?db=4", want: options{Addrs: []string{"[::1]:6379"}, DB: 4}, text: "[::1]:6379"},
		{url: "redis://:pw@h", want: options{Addrs: []string{"h:6379"}, Password: "pw"}, text: "h:6379"},
		{url: "redis://us%40er:p%2Fw%25%40d:x@h:1/1", want: options{Addrs: []string{"h:1"}, DB: 1, Username: "us@er", Password: "p/w%@d:x"}, text: "h:1"},
		{
			url:  "redis://h?dial_timeout=4s&read_timeout=5s&write_timeout=6&pool_timeout=7s&min_idle_conns=1&conn_max_idle_time=8s&conn_max_lifetime=1h",
			want: options{Addrs: []string{"h:6379"}, DialTimeout: 4 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 6 * time.Second, PoolTimeout: 7 * time.Second, MinIdleConns: 1, ConnMaxIdleTime: 8 * time.Second, ConnMaxLifetime: time.Hour},
			text: "h:6379",
		},
		{url: "rediss://:pw@h:6380/2?ca_file=" + certificates.CAFile, want: options{Addrs: []string{"h:6380"}, DB: 2, Password: "pw"}, text: "h:6380", useTLS: true, tlsName: "h"},
		{url: "redis-socket:///run/redis.sock?db=1", kind: Socket, want: options{Addrs: []string{"/run/redis.sock"}, DB: 1}, text: "/run/redis.sock"},
		{url: "redis-socket://u:pw@/run/a%20b.sock", kind: Socket, want: options{Addrs: []string{"/run/a b.sock"}, Username: "u", Password: "pw"}, text: "/run/a b.sock"},
		{url: "redis-sentinel://h1:1,h2/5?master=main", kind: Sentinel, want: options{Addrs: []string{"h1:1", "h2:26379"}, DB: 5, MasterName: "main"}, text: "master main of Sentinel h1:1,h2:26379"},
		{url: "redis-sentinel://u:pw@[::1]?master=m&sentinel_username=su&sentinel_password=s%26p&tls=true", kind: Sentinel, want: options{Addrs: []string{"[::1]:26379"}, MasterName: "m", Username: "u", Password: "pw", SentinelUsername: "su", SentinelPassword: "s&p"}, text: "master m of Sentinel [::1]:26379", useTLS: true},
		{url: "redis-cluster://h1:7000,h2:7001", kind: Cluster, want: options{Addrs: []string{"h1:7000", "h2:7001"}, IsClusterMode: true}, text: "Cluster h1:7000,h2:7001"},
		{url: "redis-cluster://:pw@h1,[::1]/0?tls=1&ca_file=" + certificates.CAFile + "&pool_size=7", kind: Cluster, want: options{Addrs: []string{"h1:6379", "[::1]:6379"}, Password: "pw", PoolSize: 7, IsClusterMode: true}, text: "Cluster h1:6379,[::1]:6379", useTLS: true},
		{url: "embedded:", kind: Embedded, text: "embedded"},
		{url: "embedded://", kind: Embedded, text: "embedded"},
	}
	for _, tt := range tests {
		got, err := Parse(tt.url)
		if err != nil {
			t.Errorf("Parse(%q): %v", tt.url, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got.options, cmpopts.IgnoreFields(options{}, "TLSConfig")); diff != "" || got.Kind != tt.kind {
			t.Errorf("Parse(%q): kind %d, want %d (-want +got):\n%s", tt.url, got.Kind, tt.kind, diff)
		}
		if got.String() != tt.text {
			t.Errorf("Parse(%q).String() = %q, want %q", tt.url, got.String(), tt.text)
		}
		config := got.options.TLSConfig
		if (config != nil) != tt.useTLS {
			t.Errorf("Parse(%q): TLS %v", tt.url, config)
			continue
		}
		if tt.useTLS && (config.MinVersion != tls.VersionTLS12 || config.ServerName != tt.tlsName ||
			(config.RootCAs != nil) != strings.Contains(tt.url, "ca_file")) {
			t.Errorf("Parse(%q): TLS from %x, name %q, own CA %t", tt.url, config.MinVersion, config.ServerName, config.RootCAs != nil)
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
		form    = "does not start with a form of URL that Tidegate knows; start it with redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster://"
		encode  = "has a character that a URL cannot hold there; percent-encode special characters in user and password: / as %2F, ? as %3F, # as %23, @ as %40, % as %25"
		hosts   = "names no host, or one too many; write it as docs/configuration.md does"
		value   = "has a path, database or parameter that cannot be read; use numbers such as 0, and durations such as 5s"
		none    = "has no password before the @; write :PASSWORD@ or USER:PASSWORD@"
		unknown = "has an unknown query parameter; known here: ca_file, cert_file, key_file, db, pool_size, pool_timeout, min_idle_conns, dial_timeout, read_timeout, write_timeout, conn_max_idle_time, conn_max_lifetime"
		noTLS   = "names certificates and no TLS; add tls=true"
		pair    = "has a cert_file and key_file that cannot be used: "
	)
	tests := []struct{ url, want string }{
		{"", form},
		{"hunter2", form},
		{"redis", form},
		{"127.0.0.1:6379", form},
		{"http://h", form},
		{"redis:h", form},
		{"unix:///run/redis.sock", form},
		{"redis://", hosts},
		{"redis:///0", hosts},
		{"redis-cluster://h1,,h2", hosts},
		{"redis://h1,h2", hosts},
		{"redis-socket://h/run/redis.sock", hosts},
		{"redis://h:hunter2", encode},
		{"redis://h /0", encode},
		{"redis://hunter2@h", none},
		{"redis://user:@h", none},
		{"redis://:hunter2%@h", encode},
		{"redis://:hun^ter2@h", encode},
		{"redis://:hun/ter2@h/0", encode},
		{"redis://:hun?ter2@h/0", encode},
		{"redis://:hun#ter2@h/0", encode},
		{"redis://:123/ter2@h/0", encode},
		{"redis://:hun@4/ter2@h/0", encode},
		{"redis://h/hunter2", value},
		{"redis://h/-1", value},
		{"redis://h/0?db=x", value},
		{"redis://h?pool_size=-1", value},
		{"redis://h?read_timeout=long", value},
		{"redis-socket://", value},
		{"redis-cluster://h/1", "names a database other than 0, and Redis Cluster has no other; take the number out"},
		{"redis://h?master=m", unknown},
		{"redis://h?hunter2=1", unknown},
		{"redis://h?max_retries=3", unknown},
		{"redis://h?db=%zz", "has query parameters that cannot be read; percent-encode special characters in its values"},
		{"redis-cluster://h?tls=yes", "has a tls that is neither true nor false; use tls=true or tls=false"},
		{"redis-cluster://h?cert_file=/x&key_file=/y", noTLS},
		{"redis-cluster://h?ca_file=/x", noTLS},
		{"rediss://h?cert_file=" + certs.ClientCertFile, pair + "open : no such file or directory; give a certificate and its key as PEM files"},
		{"rediss://h?cert_file=/nowhere/c.pem&key_file=" + certs.ClientKeyFile, pair + "open /nowhere/c.pem: no such file or directory; give a certificate and its key as PEM files"},
		{
			"rediss://h?cert_file=" + certs.ClientCertFile + "&key_file=" + certs.ServerKeyFile,
			pair + "tls: private key does not match public key; give a certificate and its key as PEM files",
		},
		{"rediss://h?ca_file=/nowhere/ca.pem", "has a ca_file that cannot be used: open /nowhere/ca.pem: no such file or directory; check the path, its permissions and its form"},
		{"rediss://h?ca_file=" + noCert, "has a ca_file that cannot be used: " + noCert + " holds no certificate in PEM form; check the path, its permissions and its form"},
		{"redis-sentinel://h1,h2/0", "does not name the master; add ?master=NAME, the name that the Sentinels know the master by"},
		{"redis-sentinel://h?master=m&sentinel_username=u", "has a sentinel_username and no sentinel_password; add sentinel_password"},
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
		"redis://h/0?hunter2":         "redis://[redacted]",
		"redis://:a@hunter2@h":        "redis://:[redacted]@h",
		"rediss://u:hunter2@h:x/?a=b": "rediss://[redacted]",
		"redis-sentinel://u:hunter2@h1,h2/0?sentinel_password=hunter2&master=m&pool_size=3": "redis-sentinel://u:[redacted]@h1,h2/0?master=m&pool_size=3&sentinel_password=[redacted]",
		"redis-sentinel://h?master=m&sentinel%5Fpassword=hunter2":                           "redis-sentinel://h?master=m&sentinel_password=[redacted]",
		"redis-socket:///run/redis.sock":                                                    "redis-socket:///run/redis.sock",
		"redis://:hunter2/@h":                                                               "redis://[redacted]",
		"redis://:hunter2#@h":                                                               "redis://[redacted]",
		"http://hunter2":                                                                    "[redacted]",
		"hunter2":                                                                           "[redacted]",
		"":                                                                                  "[redacted]",
		"embedded://":                                                                       "embedded:",
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
	target.options.PoolSize = 0
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
