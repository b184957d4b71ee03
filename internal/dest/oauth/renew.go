package oauth

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed claim.lua
var claimSource string

//go:embed settle.lua
var settleSource string

var claimScript, settleScript = redis.NewScript(claimSource), redis.NewScript(settleSource)

// Why a renewal is due, in claim.lua.
const (
	dueSeed    = "seed"    // the file has another refresh token
	dueRefused = "refused" // the API has refused the access token
)

// claim is the reply of claim.lua.
type claim struct {
	asked           time.Time // when Redis was asked
	granted         bool      // this process is to renew the token
	due             string    // why a renewal is; "": it is not
	tokens, version string
	before          string    // the seeds that a new one replaces
	until, renewal  time.Time // zero: none
	problem         string
	retry           time.Time // of the problem; zero: never
}

// renew returns a token of the record, renewed by this process or another one: until when it
// may be used, and when it is due for renewal.
func (s *Source) renew(name, seed, refused string) (token string, until, due time.Time, err error) {
	pause, unreadable := pollMin, ""
	for {
		c, err := s.claim(name, seed, refused, unreadable)
		if err != nil {
			return "", until, due, notSent("Redis cannot be asked for the access token", err)
		}
		var have sealed
		if c.tokens != "" && c.due != dueSeed {
			have, err = s.open(name, c.tokens)
			switch {
			case err == nil:
			case s.file != nil:
				// Not replaced: another process may have the key that fits.
				s.o.Logger.Error("the stored tokens of a key cannot be decrypted", "key", name)
				s.release(name)
				return "", until, due, notSent(fmt.Sprintf("the stored tokens of %s cannot be decrypted: give CREDENTIALS_KEY the key that they were encrypted with, after the new one and a comma, or put a new refresh token into OAUTH_REFRESH_TOKENS_FILE", s.of(name)), nil)
			case unreadable != c.version:
				s.o.Logger.Warn("the stored access token cannot be decrypted with CREDENTIALS_KEY: a new one replaces it")
				unreadable = c.version
				if !c.granted {
					continue
				}
			}
		}
		// What the token may still be used for if it is due, but cannot be renewed.
		usable := have.Access != "" && c.due != dueRefused && have.Access != refused && (c.until.IsZero() || time.Now().Before(c.until))
		switch {
		case c.granted:
			p := s.fetch(name, seed, have, c)
			switch {
			case p.lost:
				continue // another process was faster
			case p.err == nil:
				return p.token, p.until, p.due, nil
			case !usable:
				return "", until, due, p.err
			}
			c.problem, c.retry = p.problem, p.retry
			return have.Access, c.until, later(c.retry, c.until), nil
		case c.due == "" && usable:
			return have.Access, c.until, c.renewal, nil
		case c.problem != "" && usable:
			return have.Access, c.until, later(c.retry, c.until), nil
		case c.problem != "":
			return "", until, due, s.problem(c.problem, c.retry)
		}
		select {
		case <-time.After(pause):
		case <-s.life.Done():
			return "", until, due, notSent("the worker is shutting down", nil)
		}
		pause = min(2*pause, pollMax)
	}
}

// later returns when a token is to be renewed after a problem: at retry, or when it ends.
func later(retry, until time.Time) time.Time {
	if retry.IsZero() {
		return until
	}
	return retry
}

// claim runs claim.lua; unreadable is the version of a record that cannot be decrypted, or "".
func (s *Source) claim(name, seed, refused, unreadable string) (claim, error) {
	c := claim{asked: time.Now()}
	reply, err := claimScript.Run(s.life, s.o.Redis, s.keys(name), s.holder, (s.o.Timeout + leaseMargin).Milliseconds(),
		s.seedHash(seed), hash(refused), s.clientID, replacedFor.Milliseconds(), unreadable).StringSlice()
	if err != nil {
		return c, fmt.Errorf("oauth: claim: %w", err)
	}
	c.granted, c.due, c.tokens, c.version, c.before, c.problem = reply[0] == "1", reply[1], reply[2], reply[3], reply[4], reply[7]
	for i, at := range map[int]*time.Time{5: &c.until, 6: &c.renewal, 8: &c.retry} {
		if ms, err := strconv.ParseInt(reply[i], 10, 64); err == nil {
			*at = c.asked.Add(time.Duration(ms) * time.Millisecond)
		}
	}
	return c, nil
}

// seedHash identifies what a record's tokens come from.
func (s *Source) seedHash(seed string) string {
	if s.file == nil {
		return s.clientID
	}
	return hash(seed)
}

// settle keeps the result of a renewal for keep; false if another process has renewed the
// record meanwhile.
func (s *Source) settle(ctx context.Context, name, version string, fields ...any) (bool, error) {
	return s.settleOn(ctx, s.o.Redis, name, version, fields...)
}

func (s *Source) settleOn(ctx context.Context, rdb redis.Scripter, name, version string, fields ...any) (bool, error) {
	kept := keep
	if s.record != "oauth" {
		kept = keepOwn
	}
	args := append([]any{s.holder, version, kept.Milliseconds()}, fields...)
	ok, err := settleScript.Run(ctx, rdb, s.keys(name), args...).Bool()
	if err != nil {
		return false, fmt.Errorf("oauth: settle: %w", err)
	}
	return ok, nil
}

// release ends the lease of a renewal that was not made.
func (s *Source) release(name string) {
	_, _ = s.settle(s.life, name, "none") // otherwise it ends by itself
}

func (s *Source) keys(name string) []string {
	slot := func(kind string) string {
		return s.o.Namespace.SlotKey(s.o.Destination, kind+":"+name)
	}
	return []string{slot(s.record), slot(s.record + "-lease")}
}

// of names what a record is about, for texts.
func (s *Source) of(name string) string {
	if name == "" {
		return "destination " + s.o.Destination
	}
	return fmt.Sprintf("key %q of destination %s", name, s.o.Destination)
}
