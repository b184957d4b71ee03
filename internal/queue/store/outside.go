package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	outsideScript = script("outside")
	expectScript  = script("expect")
)

// Terms say what a result from outside comes to. The worker that makes the call knows them, and keeps them with the job:
// whoever takes the result needs neither the policy nor the configuration.
type Terms struct {
	// Retention of a completed job, in whole seconds.
	Retention time.Duration
	// Timeout and Explicit are the delays of a retry after a failure of that trigger; below 0: it is not retried.
	Timeout, Explicit time.Duration
	// MaxRetries of the policy.
	MaxRetries int
}

// String is the form of FieldTerms.
func (t Terms) String() string {
	delay := func(d time.Duration) string {
		if d < 0 {
			return "-"
		}
		return strconv.FormatInt(Millis(d), 10)
	}
	return fmt.Sprintf("%d %s %s %d", int64(t.Retention/time.Second), delay(t.Timeout), delay(t.Explicit), t.MaxRetries)
}

// Bounds of a token, in bytes.
const (
	tokenSecret = 18
	maxToken    = 400
)

// NewToken returns a token by which an API reports the result of a job, and its hash, which the job keeps. The token names
// the job, so that Redis needs no index of tokens.
func NewToken(queue, id string) (token, hash string) {
	secret := make([]byte, tokenSecret)
	_, _ = rand.Read(secret) // never fails
	_, name, _ := strings.Cut(queue, ":")
	token = base64.RawURLEncoding.EncodeToString(append([]byte(name+"/"+id+"/"), secret...))
	return token, digestOf(token)
}

// ParseToken returns which job a token names, and its hash; ok is false if it has not the form of one.
func (n Namespace) ParseToken(token string) (ref Ref, hash string, ok bool) {
	if len(token) > maxToken {
		return Ref{}, "", false
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return Ref{}, "", false
	}
	name, rest, _ := strings.Cut(string(text), "/")
	id, secret, _ := strings.Cut(rest, "/")
	ref = Ref{Queue: n.Key(name), ID: id}
	return ref, digestOf(token), n.Owns(ref.Queue) && !strings.ContainsAny(name, "{}") && id != "" && len(secret) == tokenSecret
}

// digestOf is 132 bits of a hash.
func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

// Expect keeps the hash of a token that a call of a run is about to carry. ok is false if the run does not have the job
// any more. Errors: Redis's.
func Expect(ctx context.Context, rdb redis.Scripter, queue, id, run, hash string, attempt int, t Terms) (ok bool, err error) {
	n, err := expectScript.Run(ctx, rdb, []string{TaskKey(queue, id)}, queue, run, hash, attempt, t.String()).Int()
	if err != nil {
		return false, fmt.Errorf("keep the token of job %s: %w", id, err)
	}
	return n == 1, nil
}

// Outside is a result of a job, or a part of it, from outside its worker.
type Outside struct {
	// Status is StateCompleted, StateFailed, or "" for neither.
	Status string
	// Output of a completed job and Progress are JSON, "" for none; Error is why it failed.
	Output, Error, Progress string
	// Extend moves the deadline; 0: not.
	Extend time.Duration
	By     string
}

// OutsideEffect is what a result from outside came to.
type OutsideEffect string

// The effects of results from outside.
const (
	OutsideDone    OutsideEffect = "done"
	OutsideKept    OutsideEffect = "kept"    // until the call has ended
	OutsideAgain   OutsideEffect = "again"   // it has come before
	OutsideUsed    OutsideEffect = "used"    // the token has brought another result, or its attempt has ended
	OutsideRefused OutsideEffect = "refused" // the state does not allow it
	OutsideNone    OutsideEffect = "none"    // there is no such job, or it does not have the token
)

// Report takes a result of a job from outside. hash is the token's, "" if the caller is authorized otherwise. state is the
// one before. Errors: Redis's.
func Report(ctx context.Context, rdb redis.Scripter, ref Ref, hash string, o Outside) (effect OutsideEffect, state string, err error) {
	extend := ""
	if o.Extend > 0 {
		extend = strconv.FormatInt(Millis(o.Extend), 10)
	}
	reply, err := outsideScript.Run(ctx, rdb, []string{PendingKey(ref.Queue)}, ref.Queue, ref.ID, hash, o.Status, o.Output, o.Error, o.Progress,
		extend, digestOf(o.Status, o.Output, o.Error), o.By).StringSlice()
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("%d values", len(reply))
	}
	if err != nil {
		return "", "", fmt.Errorf("report the result of job %s: %w", ref.ID, err)
	}
	return OutsideEffect(reply[0]), reply[1], nil
}
