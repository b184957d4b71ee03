package bench

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// sharedStore keeps the state of gobreaker's distributed breaker in Redis. gobreaker's own
// store cannot be depended on, for it is in a module without releases; this one sends
// the same commands in the same order: GET and SET for the state, SET NX PX for the
// lock, with redsync's number of tries and pauses, and a script that deletes the lock
// if it is still ours.
type sharedStore struct {
	rdb   redis.UniversalClient
	token string // of the lock that is held
}

var _ gobreaker.SharedDataStore = (*sharedStore)(nil)

const (
	lockExpiry   = 5 * time.Second
	lockTries    = 32
	lockPauseMin = 50 * time.Millisecond
	lockPauseMax = 250 * time.Millisecond
	storeTimeout = 5 * time.Second
)

// KEYS[1] the lock, ARGV[1] our token. Returns 1 if it was ours.
var unlockScript = redis.NewScript(`
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0`)

func (s *sharedStore) Lock(name string) error {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	token := base64.StdEncoding.EncodeToString(secret[:])
	for try := range lockTries {
		if try > 0 {
			<-time.After(lockPauseMin + mrand.N(lockPauseMax-lockPauseMin))
		}
		ok, err := s.lock(name, token)
		if err != nil {
			return err
		}
		if ok {
			s.token = token
			return nil
		}
	}
	return errors.New("store: lock: it is taken")
}

// lock tries once, and takes back what may be half done as redsync does.
func (s *sharedStore) lock(name, token string) (bool, error) {
	ctx, cancel := s.context()
	defer cancel()
	err := s.rdb.SetArgs(ctx, name, token, redis.SetArgs{Mode: "NX", TTL: lockExpiry}).Err()
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, redis.Nil):
		_, err = unlockScript.Run(ctx, s.rdb, []string{name}, token).Int()
	}
	if err != nil {
		return false, fmt.Errorf("store: lock: %w", err)
	}
	return false, nil
}

func (s *sharedStore) Unlock(name string) error {
	ctx, cancel := s.context()
	defer cancel()
	n, err := unlockScript.Run(ctx, s.rdb, []string{name}, s.token).Int()
	if err != nil {
		return fmt.Errorf("store: unlock: %w", err)
	}
	if n != 1 {
		return errors.New("store: unlock: the lock is not ours any more")
	}
	return nil
}

func (s *sharedStore) GetData(name string) ([]byte, error) {
	ctx, cancel := s.context()
	defer cancel()
	data, err := s.rdb.Get(ctx, name).Bytes()
	if err != nil {
		return nil, fmt.Errorf("store: get: %w", err)
	}
	return data, nil
}

func (s *sharedStore) SetData(name string, data []byte) error {
	ctx, cancel := s.context()
	defer cancel()
	if err := s.rdb.Set(ctx, name, data, 0).Err(); err != nil {
		return fmt.Errorf("store: set: %w", err)
	}
	return nil
}

// context bounds a command; the interface hands none in.
func (s *sharedStore) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), storeTimeout)
}
