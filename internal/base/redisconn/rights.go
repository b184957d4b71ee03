package redisconn

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Rights that workers and commands need, as rules of an ACL. Those of connecting are
// not among them: without them there is no connection to ask on.
var (
	keyRights = strings.Fields(`+del +exists +expire +expireat +persist +pexpire +pttl +get +mget +set +setex +incr +incrby +decrby
		+hdel +hexists +hget +hgetall +hincrby +hkeys +hlen +hmget +hscan +hset +hsetnx
		+lindex +llen +lpos +lpush +lrange +lrem +lset +ltrim +rpop +rpush
		+sadd +scard +sismember +smembers +srandmember +srem +sscan
		+zadd +zcard +zcount +zincrby +zrange +zrangebyscore +zrank +zrem +zremrangebyscore +zpopmin +zremrangebyrank +zrevrange +zrevrangebyscore +zrevrank +zscan +zscore
		+xadd +xdel +xlen +xrange +xread +xrevrange +xtrim`)
	channelRights = strings.Fields(`+publish +subscribe`)
	otherRights   = strings.Fields(`+evalsha +script|load +scan +time +unsubscribe`)
	clusterRights = strings.Fields(`+cluster|slots +command +asking`)
)

//go:embed lua/rights.lua
var rightsSource string

// RightsError says which rights the user of REDIS_URL lacks.
type RightsError struct {
	// Missing are rules of an ACL, such as +hset or ~asynq:*.
	Missing []string
}

// Error returns one line.
func (e *RightsError) Error() string {
	return "redisconn: the Redis user of REDIS_URL lacks rights: " + strings.Join(e.Missing, " ") +
		"; give it those of deploy/redis/users.acl"
}

// CheckRights asks Redis, in one round trip, whether its user may do all that workers and commands do. It returns a
// [*RightsError] if not, and nil if Redis cannot answer the question: it can from version 7.0 on. It checks the keys
// and channels of asynq and of a namespace.
func CheckRights(ctx context.Context, client redis.UniversalClient, namespace string) error {
	keyPatterns := []string{"~" + namespace + ":*", "~asynq:*"}
	channelPatterns := []string{"&" + namespace + ":*", "&asynq:cancel"}
	var rules []string
	var lines []any
	ask := func(rule, line string) {
		rules, lines = append(rules, rule), append(lines, line)
	}
	command := func(rule string) string { return strings.ReplaceAll(strings.TrimPrefix(rule, "+"), "|", " ") }
	for _, pattern := range keyPatterns {
		for _, rule := range keyRights {
			line := command(rule) + " " + sample(pattern)
			if rule == "+xread" {
				line = "xread streams " + sample(pattern) + " 0"
			}
			ask(pattern+rule, line)
		}
	}
	for _, pattern := range channelPatterns {
		for _, rule := range channelRights {
			ask(pattern+rule, command(rule)+" "+sample(pattern))
		}
	}
	others := otherRights
	if IsCluster(client) {
		others = slices.Concat(otherRights, clusterRights)
	}
	for _, rule := range others {
		line := command(rule)
		if rule == "+evalsha" {
			line += " 0 0" // Redis looks where the keys are
		}
		ask(rule, line)
	}
	allowed, err := client.Eval(ctx, rightsSource, nil, lines...).Int64Slice()
	if redis.IsPermissionError(err) {
		return &RightsError{Missing: []string{"+eval"}}
	}
	if len(allowed) != len(rules) {
		return nil // it cannot answer, or is gone, which other calls notice
	}
	may := map[string]bool{}
	for i, rule := range rules {
		may[rule] = allowed[i] == 1
	}
	missing := slices.Concat(lacking(may, keyPatterns, keyRights), lacking(may, channelPatterns, channelRights))
	for _, rule := range others {
		if !may[rule] {
			missing = append(missing, rule)
		}
	}
	if len(missing) > 0 {
		return &RightsError{Missing: missing}
	}
	return nil
}

// sample is a name that a pattern of keys or channels allows.
func sample(pattern string) string { return strings.TrimRight(pattern[1:], "*") }

// lacking returns patterns for which no command is allowed, and commands that are not allowed for any other pattern.
func lacking(may map[string]bool, patterns, commands []string) []string {
	var out []string
	for _, pattern := range patterns {
		if !slices.ContainsFunc(commands, func(c string) bool { return may[pattern+c] }) {
			out = append(out, pattern)
		}
	}
	if len(out) == len(patterns) {
		return out
	}
	for _, c := range commands {
		if !slices.ContainsFunc(patterns, func(p string) bool { return may[p+c] }) {
			out = append(out, c)
		}
	}
	return out
}

// Refused reports whether an error is Redis's refusal for want of a right, which is
// worth a look with [CheckRights].
func Refused(err error) bool {
	if err == nil {
		return false
	}
	// Redis before 7.2 refuses what a script does in words only.
	return redis.IsPermissionError(err) || containsAny(err.Error(), "NOPERM", "The user executing the script can't")
}
