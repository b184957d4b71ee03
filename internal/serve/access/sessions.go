package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/base/redispipe"
	"github.com/tidegate/tidegate/internal/queue/store"
)

// Times of sessions.
const (
	// SessionIdle is how long a session lives that is not used.
	SessionIdle = 12 * time.Hour
	// SessionMost is how long a session lives at most.
	SessionMost = 7 * 24 * time.Hour
	// freshFor is how long Redis is not asked again: what another process ended is
	// noticed so late at most.
	freshFor = 5 * time.Second
	// graceFor is how long a session is good while Redis is away.
	graceFor = 10 * time.Minute
	// askWithin bounds a call to Redis about a session that is good without the reply, needWithin
	// a call that the page depends on. awayFor is how long Redis is not asked again after it
	// was away.
	askWithin  = time.Second
	needWithin = 5 * time.Second
	awayFor    = 2 * time.Second
	// maxRemembered bounds the sessions that are remembered here.
	maxRemembered = 10_000
)

// errAway is that Redis could not be asked.
var errAway = errors.New("access: Redis cannot be reached")

// errNoSession is that the session does not exist, or not any more.
var errNoSession = errors.New("access: no such session")

// sessions are kept in Redis: <namespace>:session:<SHA-256 of the cookie's value> has the
// hash of the token and when the session began, unix seconds. What has just been read
// is remembered here.
type sessions struct {
	rdb redis.UniversalClient
	ns  store.Namespace
	now clock

	mu        sync.Mutex
	known     map[string]*session // by key
	awayUntil time.Time
}

// session is one as it was last read.
type session struct {
	token   hash
	began   time.Time
	checked time.Time
	asking  bool // a request asks Redis; others take it as it is
}

func newSessions(rdb redis.UniversalClient, ns store.Namespace, now clock) *sessions {
	return &sessions{rdb: rdb, ns: cmp.Or(ns, store.DefaultNamespace), now: now, known: map[string]*session{}}
}

// key is the key of a cookie's value: a reader of Redis cannot use it.
func (s *sessions) key(cookie string) string {
	sum := sha256.Sum256([]byte(cookie))
	return s.ns.Key("session:" + hex.EncodeToString(sum[:]))
}

// beginScript keeps a session: KEYS[1] its key, ARGV[1] its value, ARGV[2] for how many
// ms. A Redis that is full, which is when people want to look, takes the rest of a script
// that began by freeing memory.
var beginScript = redis.NewScript(`
redis.call('DEL', KEYS[1])
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
`)

// begin makes a session and returns the cookie's value. The error is errAway.
func (s *sessions) begin(ctx context.Context, token hash) (cookie string, err error) {
	cookie = randomText()
	now := s.now()
	ctx, cancel := context.WithTimeout(ctx, needWithin)
	defer cancel()
	value := token.String() + " " + strconv.FormatInt(now.Unix(), 10)
	if err := beginScript.Run(ctx, s.rdb, []string{s.key(cookie)}, value, SessionIdle.Milliseconds()).Err(); err != nil {
		return "", fmt.Errorf("%w: %w", errAway, err)
	}
	s.remember(s.key(cookie), &session{token: token, began: now, checked: now})
	return cookie, nil
}

// end ends sessions. They are forgotten here even if the error is errAway.
func (s *sessions) end(ctx context.Context, cookies []string) error {
	ctx, cancel := context.WithTimeout(ctx, needWithin)
	defer cancel()
	var failed error
	for _, cookie := range cookies {
		s.forget(s.key(cookie))
		if err := s.rdb.Del(ctx, s.key(cookie)).Err(); err != nil {
			failed = fmt.Errorf("%w: %w", errAway, err)
		}
	}
	return failed
}

// token returns the hash of the token of the session with a key. Errors: errNoSession,
// errAway.
func (s *sessions) token(ctx context.Context, key string) (hash, error) {
	now := s.now()
	s.mu.Lock()
	known, found := s.known[key]
	good := found && now.Sub(known.checked) < graceFor && now.Sub(known.began) < SessionMost
	ask := !now.Before(s.awayUntil) && !(good && (now.Sub(known.checked) < freshFor || known.asking))
	if found && ask {
		known.asking = true
	}
	s.mu.Unlock()
	if ask {
		within := needWithin
		if good {
			within = askWithin
		}
		read, err := s.read(ctx, key, now, within)
		switch {
		case err == nil:
			s.remember(key, read)
			return read.token, nil
		case errors.Is(err, errNoSession):
			s.forget(key)
			return hash{}, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.awayUntil = now.Add(awayFor)
		if found {
			known.asking = false
		}
	}
	if !good {
		return hash{}, errAway
	}
	return known.token, nil
}

// read asks Redis, which puts the session's end off.
func (s *sessions) read(ctx context.Context, key string, now time.Time, within time.Duration) (*session, error) {
	// A browser that leaves has no say in what others wait for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	var value *redis.StringCmd
	_, err := redispipe.Run(ctx, s.rdb, func(pipe redis.Pipeliner) error {
		value = pipe.Get(ctx, key)
		pipe.PExpire(ctx, key, SessionIdle)
		return nil
	})
	text, found := value.Val(), value.Err()
	switch {
	case errors.Is(found, redis.Nil):
		return nil, errNoSession
	case found != nil:
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	// A Redis that takes no writes cannot put the end off, and that is all.
	hashed, seconds, _ := strings.Cut(text, " ")
	token, ok := parseHash(hashed)
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if began := time.Unix(unix, 0); ok && err == nil && now.Sub(began) < SessionMost {
		return &session{token: token, began: began, checked: now}, nil
	}
	return nil, errNoSession
}

func (s *sessions) remember(key string, found *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awayUntil = time.Time{}
	if _, there := s.known[key]; !there && len(s.known) >= maxRemembered {
		for other := range s.known { // any: Redis knows it
			delete(s.known, other)
			break
		}
	}
	s.known[key] = found
}

func (s *sessions) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}
