package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
	// maxPing bounds one try, so that a host that swallows packets is tried again.
	maxPing = 3 * time.Second
)

// Wait waits until Redis answers, for at most the given time, then checks that
// it is one that Tidegate can work with. Use it once at start.
//
// The first failure is logged in one line, the last one returned. It does not
// wait where waiting will not help: wrong credentials, a certificate that is not
// trusted, a database that does not exist, the wrong kind of server, or a Redis
// before 6.2. A server that may evict keys (maxmemory-policy other than
// noeviction) is warned of. Checks that the server does not permit are left out.
//
// If ctx ends first, the error wraps its cause.
func Wait(ctx context.Context, client redis.UniversalClient, log *slog.Logger, patience time.Duration) error {
	start := time.Now()
	deadline := start.Add(patience)
	addr, useTLS := address(client)
	pause := firstPause
	var last error // the latest that is not a timeout
	for tries := 0; ; tries++ {
		err := ping(ctx, client, deadline)
		if err != nil && (last == nil || !timedOut(err)) {
			last = err
		}
		if err == nil {
			if tries > 0 {
				log.InfoContext(ctx, "Redis reachable", "addr", addr, "after", time.Since(start).Round(time.Millisecond).String())
			}
			return inspect(ctx, client, log, addr)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("redisconn: wait for Redis at %s: %w", addr, context.Cause(ctx))
		}
		if fix := hopeless(err); fix != "" {
			return fmt.Errorf("redisconn: Redis at %s cannot be used (%w); %s", addr, short(err, useTLS), fix)
		}
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("redisconn: Redis not reachable at %s for %s (%w); check REDIS_URL or start Redis", addr, patience, short(last, useTLS))
		}
		if tries == 0 {
			log.WarnContext(ctx, "Redis not reachable; check REDIS_URL or start Redis",
				"addr", addr, "reason", short(err, useTLS).Error(), "trying_for", patience.String())
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return fmt.Errorf("redisconn: wait for Redis at %s: %w", addr, err)
		}
		pause = min(2*pause, maxPause)
	}
}

// ping makes one try, never past the deadline by more than it takes to notice.
func ping(ctx context.Context, client redis.UniversalClient, deadline time.Time) error {
	most := min(maxPing, max(time.Until(deadline), firstPause))
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return client.Ping(ctx).Err()
}

// timedOut reports whether the time was up, which says less than any other error.
func timedOut(err error) bool {
	network, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && network.Timeout()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// address returns what the client connects to, and whether it uses TLS.
func address(client redis.UniversalClient) (addr string, useTLS bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return cmp.Or(o.IdentitySuffix, o.Addr), o.TLSConfig != nil
	case *redis.ClusterClient:
		o := c.Options()
		return cmp.Or(o.IdentitySuffix, "Cluster "+strings.Join(o.Addrs, ",")), o.TLSConfig != nil
	}
	return "the configured address", false
}

// shortError shows the part of a connection error that says something.
type shortError struct {
	text  string
	cause error
}

func (e *shortError) Error() string { return e.text }
func (e *shortError) Unwrap() error { return e.cause }

func short(err error, useTLS bool) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	var (
		op    *net.OpError
		reply redis.Error
	)
	said, closed := errors.AsType[*serverError](err)
	switch {
	case closed:
		text = said.text
	case errors.Is(err, redis.Nil): // a Sentinel's answer to the question for the master
		text = "the Sentinels do not know a master of this name"
	case errors.Is(err, context.DeadlineExceeded) && useTLS:
		text = "no answer; a server without TLS gives none: then use redis://"
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer"
	case errors.Is(err, io.EOF) && !useTLS:
		text = "the connection is closed at once; a server with TLS does that: then use rediss://"
	case errors.As(err, &op):
		text = op.Err.Error()
	case errors.As(err, &reply):
		text = reply.Error()
	}
	return &shortError{text: text, cause: err}
}

// hopeless returns what to do about an error that waiting will not mend, or "".
func hopeless(err error) string {
	var (
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch text := err.Error(); {
	case errors.As(err, &certificate):
		return "check the host name, and ca_file in REDIS_URL"
	case errors.As(err, &record):
		return "the server does not speak TLS: check the form of REDIS_URL"
	case containsAny(text, "tls: certificate required"):
		return "give cert_file and key_file in REDIS_URL"
	case containsAny(text, "NOAUTH", "WRONGPASS", "invalid password", "without any password configured"):
		return "check user and password in REDIS_URL"
	case containsAny(text, "NOPERM"):
		return "give this user the rights it needs"
	case containsAny(text, "DB index is out of range"):
		return "check the database number in REDIS_URL"
	case containsAny(text, "cluster support disabled"):
		return "it is not a Cluster: use redis:// in REDIS_URL"
	}
	return ""
}

func containsAny(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// The oldest Redis that will do.
const (
	minMajor = 6
	minMinor = 2
)

// inspect refuses a server of the wrong kind or age, and warns of one that may
// evict keys.
func inspect(ctx context.Context, client redis.UniversalClient, log *slog.Logger, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, maxPing)
	defer cancel()
	fields := map[string]string{}
	for _, section := range []string{"server", "memory"} { // Redis 6.2 takes one at a time
		info, err := client.Info(ctx, section).Result()
		if err != nil {
			return nil // not permitted or not implemented
		}
		for line := range strings.Lines(info) {
			if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
				fields[name] = value
			}
		}
	}
	switch mode := fields["redis_mode"]; {
	case mode == "sentinel":
		return fmt.Errorf("redisconn: the server at %s is a Sentinel; use redis-sentinel://…?master=NAME in REDIS_URL", addr)
	case mode == "cluster" && !IsCluster(client):
		return fmt.Errorf("redisconn: the server at %s is part of a Redis Cluster; use redis-cluster:// in REDIS_URL", addr)
	}
	if version := fields["redis_version"]; tooOld(version) {
		return fmt.Errorf("redisconn: Redis %s at %s is too old; use %d.%d or later", version, addr, minMajor, minMinor)
	}
	// Also without maxmemory, which may be set later. CONFIG GET is often forbidden.
	if policy := fields["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		log.WarnContext(ctx, "Redis may drop jobs when its memory is full; set its maxmemory-policy to noeviction",
			"addr", addr, "maxmemory_policy", policy)
	}
	return nil
}

// tooOld reports whether a version is before the oldest that will do. A version
// that cannot be read is taken for new.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return major < minMajor || (major == minMajor && minor < minMinor)
}
