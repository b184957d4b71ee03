package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/secret"
	"github.com/tidegate/tidegate/internal/base/text"
)

// Kind is the kind of Redis that a URL names.
type Kind int

// The kinds.
const (
	Single   Kind = iota // one server: redis:// or rediss://
	Socket               // one server by its unix socket: redis-socket://
	Sentinel             // the master that Sentinels name: redis-sentinel://
	Cluster              // Redis Cluster: redis-cluster://
	Embedded             // a server inside this process: embedded:
)

// Target is a parsed REDIS_URL. Printed, it shows no credentials.
type Target struct {
	// Kind is what the scheme says.
	Kind Kind

	options redis.UniversalOptions // what the URL says; Universal adds the rest
	query   url.Values
}

// String returns the addresses, for messages. It holds no credentials.
func (t Target) String() string {
	addrs := strings.Join(t.options.Addrs, ",")
	switch t.Kind {
	case Sentinel:
		return "master " + t.options.MasterName + " of Sentinel " + addrs
	case Cluster:
		return "Cluster " + addrs
	case Embedded:
		return "embedded"
	}
	return addrs
}

// GoString returns what String does: the fields hold credentials.
func (t Target) GoString() string { return "redisconn.Target(" + t.String() + ")" }

// URLError says what is wrong with a REDIS_URL. It quotes no part of the URL
// that could be a password.
type URLError struct {
	// Problem says what is wrong.
	Problem string
	// Fix says what to do.
	Fix string
}

// Error returns one line.
func (e *URLError) Error() string {
	return "redisconn: parse REDIS_URL: " + e.Problem + "; " + e.Fix
}

func bad(fix, problem string, args ...any) error {
	return &URLError{Problem: fmt.Sprintf(problem, args...), Fix: fix}
}

var schemes = map[string]Kind{
	"redis": Single, "rediss": Single, "redis-socket": Socket, "redis-sentinel": Sentinel, "redis-cluster": Cluster,
}

// libraryParams are the query parameters that go-redis reads. It knows more, which Tidegate sets itself: with
// max_retries, for example, go-redis would run scripts twice.
var libraryParams = []string{
	"db", "pool_size", "pool_timeout", "min_idle_conns", "dial_timeout", "read_timeout", "write_timeout",
	"conn_max_idle_time", "conn_max_lifetime",
}

// ownParams returns the query parameters that go-redis does not read.
func (k Kind) ownParams() []string {
	files := []string{"ca_file", "cert_file", "key_file"}
	switch k {
	case Single:
		return files
	case Sentinel:
		return append(files, "tls", "master", "sentinel_username", "sentinel_password")
	case Cluster:
		return append(files, "tls")
	}
	return nil
}

// Parse reads a REDIS_URL:
//
//	redis://[USER:PASSWORD@]HOST[:6379][/DB]
//	rediss://…                                   the same over TLS
//	redis-socket://[USER:PASSWORD@]/PATH[?db=DB] unix socket
//	redis-sentinel://[USER:PASSWORD@]HOST[:26379],HOST…[/DB]?master=NAME
//	redis-cluster://[USER:PASSWORD@]HOST[:6379],HOST…
//	embedded:                                    a server in this process
//
// Parse hands it to [redis.ParseURL], in a form that go-redis knows, once for each host. User, password and path are
// percent-encoded. The query parameters are libraryParams, as go-redis describes them; ca_file (PEM file of a private
// CA, for TLS); cert_file and key_file (PEM files of a client's certificate and its key, for servers that ask for one);
// tls=true (Sentinel and Cluster); sentinel_username and sentinel_password, if the Sentinels ask for them. TLS is 1.2 or
// later.
//
// The error is a [*URLError]. Parse reads these files, and nothing else.
func Parse(rawURL string) (*Target, error) {
	t, _, err := read(rawURL)
	if err != nil {
		return nil, err
	}
	if err := t.readFiles(); err != nil {
		return nil, err
	}
	return t, nil
}

// Redact returns the URL with its passwords masked, for people to read. Of a URL
// that [Parse] would refuse it shows the scheme at most.
func Redact(rawURL string) string {
	_, redacted, _ := read(rawURL)
	return redacted
}

// Passwords returns the passwords of a URL, and user:password, as they are sent. Of a URL that
// [Parse] would refuse there is none.
func Passwords(rawURL string) []string {
	t, _, err := read(rawURL)
	if err != nil {
		return nil
	}
	var out []string
	if o := t.options; o.Password != "" {
		out = append(out, o.Password, o.Username+":"+o.Password)
	}
	if t.options.SentinelPassword != "" {
		out = append(out, t.options.SentinelPassword)
	}
	return out
}

// read is Parse without the files. It also returns what [Redact] shows.
func read(rawURL string) (t *Target, redacted string, err error) {
	raw := strings.TrimSpace(rawURL)
	if raw == "embedded:" || raw == "embedded://" {
		return &Target{Kind: Embedded}, "embedded:", nil
	}
	scheme, rest, found := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	kind, known := schemes[scheme]
	if !found || !known {
		return nil, secret.Mask, bad("start it with redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster://",
			"does not start with a form of URL that Tidegate knows")
	}
	authority, tail := rest, "" // net/url knows no list of hosts
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	at := strings.LastIndex(authority, "@") + 1
	userinfo, hosts := authority[:at], authority[at:]
	path, query, _ := strings.Cut(tail, "?")

	t = &Target{Kind: kind, options: redis.UniversalOptions{IsClusterMode: kind == Cluster}}
	if strings.ContainsAny(tail, "@#") {
		err = errEncode
	} else if err = t.setQuery(query, scheme == "rediss"); err == nil {
		err = t.setServers(userinfo, hosts, path)
	}
	if err != nil {
		return nil, scheme + "://" + secret.Mask, err
	}
	if user, _, found := strings.Cut(userinfo, ":"); found {
		userinfo = user + ":" + secret.Mask + "@"
	}
	shown := maps.Clone(t.query)
	if shown.Has("sentinel_password") {
		shown.Set("sentinel_password", secret.Mask)
	}
	redacted = scheme + "://" + userinfo + hosts + path
	if params, err := url.QueryUnescape(shown.Encode()); err == nil && params != "" {
		redacted += "?" + params
	}
	return t, redacted, nil
}

var errEncode = bad("percent-encode special characters in user and password: / as %2F, ? as %3F, # as %23, @ as %40, % as %25",
	"has a character that a URL cannot hold there")

func (t *Target) setQuery(text string, useTLS bool) (err error) {
	if t.query, err = url.ParseQuery(text); err != nil {
		return bad("percent-encode special characters in its values", "has query parameters that cannot be read")
	}
	known := append(t.Kind.ownParams(), libraryParams...)
	for name := range t.query {
		if !slices.Contains(known, name) {
			return bad("known here: "+strings.Join(known, ", "), "has an unknown query parameter")
		}
	}
	if t.query.Has("tls") {
		if useTLS, err = strconv.ParseBool(t.query.Get("tls")); err != nil {
			return bad("use tls=true or tls=false", "has a tls that is neither true nor false")
		}
	}
	if useTLS {
		t.options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	} else if t.query.Has("ca_file") || t.query.Has("cert_file") || t.query.Has("key_file") {
		return bad("add tls=true", "names certificates and no TLS")
	}
	t.options.MasterName = t.query.Get("master")
	t.options.SentinelUsername, t.options.SentinelPassword = t.query.Get("sentinel_username"), t.query.Get("sentinel_password")
	switch {
	case t.Kind == Sentinel && t.options.MasterName == "":
		return bad("add ?master=NAME, the name that the Sentinels know the master by", "does not name the master")
	case t.options.SentinelUsername != "" && t.options.SentinelPassword == "":
		return bad("add sentinel_password", "has a sentinel_username and no sentinel_password")
	}
	return nil
}

// setServers lets go-redis read the URL, once for each host, in a form that it knows.
func (t *Target) setServers(userinfo, hosts, path string) error {
	form := "redis://"
	if t.Kind == Socket {
		form = "unix://"
	}
	query := url.Values{}
	for _, name := range libraryParams {
		if t.query.Has(name) {
			query[name] = t.query[name]
		}
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil && t.Kind == Sentinel {
			host += ":26379"
		}
		o, err := redis.ParseURL(form + userinfo + host + path + "?" + query.Encode())
		_, noURL := errors.AsType[*url.Error](err)
		switch {
		case noURL:
			return errEncode
		case err != nil || o.DB < 0 || o.PoolSize < 0:
			return bad("use numbers such as 0, and durations such as 5s", "has a path, database or parameter that cannot be read")
		case host == "" && t.Kind != Socket, host != "" && t.Kind == Socket, t.Kind == Single && strings.Contains(hosts, ","):
			return bad("write it as docs/configuration.md does", "names no host, or one too many")
		case userinfo != "" && o.Password == "":
			return bad("write :PASSWORD@ or USER:PASSWORD@", "has no password before the @")
		case t.Kind == Cluster && o.DB != 0:
			return bad("take the number out", "names a database other than 0, and Redis Cluster has no other")
		}
		t.options.Addrs = append(t.options.Addrs, o.Addr)
		t.options.DB, t.options.Username, t.options.Password = o.DB, o.Username, o.Password
		t.options.PoolSize, t.options.PoolTimeout, t.options.MinIdleConns = o.PoolSize, o.PoolTimeout, o.MinIdleConns
		t.options.DialTimeout, t.options.ReadTimeout, t.options.WriteTimeout = o.DialTimeout, o.ReadTimeout, o.WriteTimeout
		t.options.ConnMaxIdleTime, t.options.ConnMaxLifetime = o.ConnMaxIdleTime, o.ConnMaxLifetime
	}
	if tls := t.options.TLSConfig; tls != nil && t.Kind == Single { // the others take the name from each address
		tls.ServerName, _, _ = net.SplitHostPort(t.options.Addrs[0])
	}
	return nil
}

const maxCAFile = 4 << 20 // bytes

// readFiles reads the certificates that the URL names.
func (t *Target) readFiles() error {
	if name := t.query.Get("ca_file"); name != "" {
		pool := x509.NewCertPool()
		pem, _, err := text.ReadFile(name, maxCAFile)
		if err == nil && !pool.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s holds no certificate in PEM form", name)
		}
		if err != nil {
			return bad("check the path, its permissions and its form", "has a ca_file that cannot be used: %v", err)
		}
		t.options.TLSConfig.RootCAs = pool
	}
	if t.query.Has("cert_file") || t.query.Has("key_file") {
		pair, err := tls.LoadX509KeyPair(t.query.Get("cert_file"), t.query.Get("key_file"))
		if err != nil {
			return bad("give a certificate and its key as PEM files", "has a cert_file and key_file that cannot be used: %v", err)
		}
		t.options.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}
