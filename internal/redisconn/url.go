package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tidegate/tidegate/internal/secret"
	"github.com/tidegate/tidegate/internal/text"
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

// Target is a parsed REDIS_URL.
type Target struct {
	// Kind decides which of the other fields matter.
	Kind Kind
	// Addrs are host:port pairs: the server, the Sentinels or nodes of the
	// Cluster; for Socket the path.
	Addrs []string
	// DB is the database number, 0 on a Cluster.
	DB int
	// MasterName is the name that the Sentinels know the master by.
	MasterName string
	// TLS is nil for an unencrypted connection.
	TLS *tls.Config `json:"-"`
	// PoolSize is the pool_size of the URL, 0 if it has none.
	PoolSize int

	user, password                 string
	sentinelUser, sentinelPassword string
}

// String returns the addresses, for messages. It holds no credentials.
func (t Target) String() string {
	switch t.Kind {
	case Sentinel:
		return "master " + t.MasterName + " of Sentinel " + strings.Join(t.Addrs, ",")
	case Cluster:
		return "Cluster " + strings.Join(t.Addrs, ",")
	case Embedded:
		return "embedded"
	}
	return strings.Join(t.Addrs, ",")
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

// scheme describes one form of REDIS_URL.
type scheme struct {
	kind   Kind
	tls    bool
	port   string   // where an address names none
	params []string // query parameters
}

var schemes = map[string]scheme{
	"redis":          {kind: Single, port: "6379", params: []string{"db", "pool_size"}},
	"rediss":         {kind: Single, tls: true, port: "6379", params: []string{"db", "pool_size", "ca_file", "cert_file", "key_file"}},
	"redis-socket":   {kind: Socket, params: []string{"db", "pool_size"}},
	"redis-sentinel": {kind: Sentinel, port: "26379", params: []string{"db", "pool_size", "master", "sentinel_username", "sentinel_password", "tls", "ca_file", "cert_file", "key_file"}},
	"redis-cluster":  {kind: Cluster, port: "6379", params: []string{"pool_size", "tls", "ca_file", "cert_file", "key_file"}},
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
// Query parameters: db; pool_size (connections, see [Options]); ca_file (PEM
// file of a private CA, for TLS); cert_file and key_file (PEM files of a client's
// certificate and its key, for servers that ask for one); tls=true (Sentinel and
// Cluster); sentinel_username and sentinel_password, if the Sentinels ask for them.
// User, password and path are percent-decoded. TLS is 1.2 or later.
//
// The error is a [*URLError]. Parse reads these files, and nothing else.
func Parse(rawURL string) (*Target, error) {
	parts, err := split(rawURL)
	if err != nil {
		return nil, err
	}
	t := &Target{Kind: parts.scheme.kind}
	if t.Kind == Embedded {
		return t, nil
	}
	if err := t.setCredentials(parts); err != nil {
		return nil, err
	}
	if err := t.setAddrs(parts); err != nil {
		return nil, err
	}
	if err := t.setParams(parts); err != nil {
		return nil, err
	}
	return t, nil
}

// Redact returns the URL with its passwords masked, for people to read. Of a URL
// that [Parse] would refuse it shows the scheme at most.
func Redact(rawURL string) string {
	const mask = secret.Mask
	parts, err := split(rawURL)
	if parts.scheme.params == nil && parts.scheme.kind != Embedded {
		return mask
	}
	if parts.scheme.kind == Embedded {
		return "embedded:"
	}
	t := &Target{Kind: parts.scheme.kind}
	if err != nil || t.setCredentials(parts) != nil || t.setAddrs(parts) != nil {
		return parts.name + "://" + mask
	}
	var b strings.Builder
	b.WriteString(parts.name + "://")
	if parts.userinfo != "" {
		user, _, _ := strings.Cut(parts.userinfo, ":")
		b.WriteString(user + ":" + mask + "@")
	}
	b.WriteString(parts.hosts + parts.path)
	separator := "?"
	for param := range strings.SplitSeq(parts.query, "&") {
		if param == "" {
			continue
		}
		name, _, _ := strings.Cut(param, "=")
		switch {
		case !slices.Contains(parts.scheme.params, name):
			param = mask
		case name == "sentinel_password":
			param = name + "=" + mask
		}
		b.WriteString(separator + param)
		separator = "&"
	}
	return b.String()
}

// Passwords returns the passwords of a URL, and user:password, as they are sent. Of a URL that
// [Parse] would refuse for them there is none.
func Passwords(rawURL string) []string {
	parts, err := split(rawURL)
	if err != nil {
		return nil
	}
	var out []string
	var t Target
	if t.setCredentials(parts) == nil && t.password != "" {
		out = append(out, t.password, t.user+":"+t.password)
	}
	if query, err := url.ParseQuery(parts.query); err == nil && query.Get("sentinel_password") != "" {
		out = append(out, query.Get("sentinel_password"))
	}
	return out
}

// urlParts is a URL taken apart. net/url does not read several hosts.
type urlParts struct {
	name                         string
	scheme                       scheme
	userinfo, hosts, path, query string
}

func split(rawURL string) (urlParts, error) {
	raw := strings.TrimSpace(rawURL)
	if raw == "embedded:" || raw == "embedded://" {
		return urlParts{name: "embedded", scheme: scheme{kind: Embedded}}, nil
	}
	const forms = "start it with redis://, rediss://, redis-socket://, redis-sentinel:// or redis-cluster://"
	name, rest, found := strings.Cut(raw, "://")
	p := urlParts{name: strings.ToLower(name)}
	p.scheme, found = schemes[p.name], found && schemes[p.name].params != nil
	if !found {
		return p, bad(forms, "does not start with a form of URL that Tidegate knows")
	}
	const encode = "percent-encode special characters in user and password: / as %%2F, ? as %%3F, # as %%23, @ as %%40, %% as %%25"
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(tail, "#") || (strings.Contains(tail, "@") && !strings.Contains(authority, "@") && p.scheme.kind != Socket) {
		return p, bad(strings.ReplaceAll(encode, "%%", "%"), "has a character in the wrong place")
	}
	p.hosts = authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		p.userinfo, p.hosts = authority[:i], authority[i+1:]
	}
	p.path, p.query, _ = strings.Cut(tail, "?")
	return p, nil
}

func (t *Target) setCredentials(p urlParts) error {
	if p.userinfo == "" {
		return nil
	}
	user, password, found := strings.Cut(p.userinfo, ":")
	if !found || password == "" {
		return bad("write "+p.name+"://:PASSWORD@… or "+p.name+"://USER:PASSWORD@…", "has no password before the @")
	}
	var uerr, perr error
	t.user, uerr = url.PathUnescape(user)
	t.password, perr = url.PathUnescape(password)
	if uerr != nil || perr != nil {
		return bad("write a % as %25", "has a %% in user or password that is not percent-encoding")
	}
	return nil
}

func (t *Target) setAddrs(p urlParts) error {
	if t.Kind == Socket {
		path, err := url.PathUnescape(p.path)
		if p.hosts != "" || len(path) < 2 || err != nil {
			return bad("write redis-socket:///run/redis/redis.sock", "does not hold the absolute path of a socket")
		}
		t.Addrs = []string{path}
		return nil
	}
	if p.hosts == "" {
		return bad("write "+p.name+"://HOST:"+p.scheme.port, "names no host")
	}
	for host := range strings.SplitSeq(p.hosts, ",") {
		addr, ok := hostPort(host, p.scheme.port)
		if !ok {
			return bad("write HOST, HOST:"+p.scheme.port+" or [IPV6]:"+p.scheme.port, "has an address that is not a host and a port")
		}
		t.Addrs = append(t.Addrs, addr)
	}
	if t.Kind == Single && len(t.Addrs) > 1 {
		return bad("use redis-sentinel:// or redis-cluster:// for several", "names several hosts")
	}
	return t.setDB(strings.TrimPrefix(p.path, "/"))
}

func (t *Target) setDB(text string) error {
	if text == "" {
		return nil
	}
	db, err := strconv.Atoi(text)
	switch {
	case err != nil || db < 0:
		return bad("use a number, mostly 0 to 15", "has a database that is not a number")
	case t.Kind == Cluster && db != 0:
		return bad("take the number out", "names a database other than 0, and Redis Cluster has no other")
	}
	t.DB = db
	return nil
}

// hostPort completes an address with the default port.
func hostPort(s, port string) (string, bool) {
	host := s
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		host = s[1 : len(s)-1]
	} else if strings.Contains(s, ":") {
		return "", false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if host == "" || strings.ContainsAny(host, " []%") || err != nil || n == 0 {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

func (t *Target) setParams(p urlParts) error {
	known := "known here: " + strings.Join(p.scheme.params, ", ")
	query, err := url.ParseQuery(p.query)
	if err != nil {
		return bad("percent-encode special characters in its values", "has query parameters that cannot be read")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(p.scheme.params, name):
			return bad(known, "has an unknown query parameter")
		case len(values) > 1:
			return bad("give it once", "has the query parameter %s twice", name)
		}
	}
	if err := t.setDB(query.Get("db")); err != nil {
		return err
	}
	if query.Has("pool_size") {
		n, err := strconv.Atoi(query.Get("pool_size"))
		if err != nil || n < 1 || n > 10000 {
			return bad("use a number from 1 to 10000", "has a pool_size out of range")
		}
		t.PoolSize = n
	}
	useTLS := p.scheme.tls
	if query.Has("tls") {
		if useTLS, err = strconv.ParseBool(query.Get("tls")); err != nil {
			return bad("use tls=true or tls=false", "has a tls that is neither true nor false")
		}
	}
	for _, name := range []string{"ca_file", "cert_file", "key_file"} {
		if query.Has(name) && !useTLS {
			return bad("add tls=true", "has a %s and no TLS", name)
		}
	}
	if useTLS {
		if t.TLS, err = tlsConfig(query.Get("ca_file")); err != nil {
			return err
		}
		if err := addCertificate(t.TLS, query.Get("cert_file"), query.Get("key_file")); err != nil {
			return err
		}
		if t.Kind == Single { // the others take the name from each address
			t.TLS.ServerName, _, _ = net.SplitHostPort(t.Addrs[0])
		}
	}
	t.MasterName = query.Get("master")
	if t.Kind == Sentinel && t.MasterName == "" {
		return bad("add ?master=NAME, the name that the Sentinels know the master by", "does not name the master")
	}
	t.sentinelUser, t.sentinelPassword = query.Get("sentinel_username"), query.Get("sentinel_password")
	if t.sentinelUser != "" && t.sentinelPassword == "" {
		return bad("add sentinel_password", "has a sentinel_username and no sentinel_password")
	}
	return nil
}

func tlsConfig(caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := readFile(caFile)
	if err != nil {
		return nil, bad("check the path and its permissions", "has a ca_file that cannot be read: %v", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, bad("give certificates in PEM form", "has a ca_file without a certificate: %s", caFile)
	}
	return config, nil
}

// addCertificate makes a client show its certificate.
func addCertificate(config *tls.Config, certFile, keyFile string) error {
	switch {
	case certFile == "" && keyFile == "":
		return nil
	case certFile == "" || keyFile == "":
		return bad("give cert_file and key_file", "has only one of cert_file and key_file")
	}
	cert, err := readFile(certFile)
	if err != nil {
		return bad("check the path and its permissions", "has a cert_file that cannot be read: %v", err)
	}
	key, err := readFile(keyFile)
	if err != nil {
		return bad("check the path and its permissions", "has a key_file that cannot be read: %v", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return bad("give a certificate and its key in PEM form", "has a cert_file and a key_file that do not go together: %v", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

// maxPEMFile bounds what is read of a file, in bytes.
const maxPEMFile = 4 << 20

func readFile(path string) ([]byte, error) {
	content, _, err := text.ReadFile(path, maxPEMFile)
	return content, err //nolint:wrapcheck // callers name the file
}
