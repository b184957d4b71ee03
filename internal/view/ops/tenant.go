package ops

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/jobs"
)

// mayWhole returns an error, as of one that is not known, if a confined caller of ctx may not see or change a destination
// as a whole.
func mayWhole(ctx context.Context, destination string) error {
	if id, _ := access.From(ctx); !id.May(destination, "") {
		return &jobs.UnknownDestinationError{Name: destination}
	}
	return nil
}

// ofCaller returns the items of destinations that the caller of ctx may see as a whole.
func ofCaller[T any](ctx context.Context, all []T, destination func(T) string) []T {
	if id, _ := access.From(ctx); id.Confined() {
		return slices.DeleteFunc(slices.Clone(all), func(one T) bool { return !id.May(destination(one), "") })
	}
	return all
}

// Confine narrows a filter to what the caller of ctx may see. A destination out of its bounds is a
// *jobs.UnknownDestinationError.
func Confine(ctx context.Context, f jobs.Filter) (jobs.Filter, error) {
	id, _ := access.From(ctx)
	if !id.Confined() {
		return f, nil
	}
	if jobs.ValidDestination(f.Destination) && !id.Sees(f.Destination) {
		return f, &jobs.UnknownDestinationError{Name: f.Destination}
	}
	f.Batch, f.Destinations, f.Keys = id.Own(f.Batch), id.Destinations, id.Keys
	return f, nil
}

// Find returns the id of the job that the caller of ctx means: for a confined one the job's own id, or its name
// without the token's name. A job out of its bounds is jobs.ErrNotFound, after as many reads as a missing one.
func (s *System) Find(ctx context.Context, id string) (string, error) {
	caller, _ := access.From(ctx)
	if !caller.Confined() {
		return id, nil
	}
	for _, name := range []string{caller.Own(id), id} {
		job, err := s.client.Get(ctx, name)
		switch {
		case err == nil && caller.May(job.Destination, job.Key):
			return name, nil
		case err == nil: // answered as late as one that is not there, for which two more reads are made
			_, err1 := s.client.Now(ctx)
			_, err2 := s.client.Now(ctx)
			if err := errors.Join(err1, err2); err != nil {
				return "", err
			}
		case !errors.Is(err, jobs.ErrNotFound):
			return "", err
		}
	}
	return "", fmt.Errorf("job %q: %w", id, jobs.ErrNotFound)
}

// Take takes jobs that are to be enqueued, or n permits, from the quota of the caller of ctx, from the first as many as
// there is room for. Their ids must be set. wait is until its rate has room for the next; 0: its backlog is full.
func (s *System) Take(ctx context.Context, specs []*jobs.Spec, n int) (taken int, wait time.Duration, err error) {
	id, _ := access.From(ctx)
	q := id.Quota()
	if n += len(specs); n == 0 || q == (store.Quota{}) {
		return n, 0, nil
	}
	refs := make([]store.Ref, n)
	for i, spec := range specs {
		refs[i] = s.ref(spec)
	}
	if len(specs) == 0 {
		q.MaxBacklog = 0
	}
	return s.namespace().TakeQuota(ctx, s.rdb, id.Name, q, refs)
}

// ref is a job in a backlog; zero if it is refused.
func (s *System) ref(spec *jobs.Spec) (r store.Ref) {
	if jobs.ValidDestination(spec.Destination) && jobs.ValidName(spec.ID) && jobs.ValidName(cmp.Or(string(spec.Priority), "default")) {
		r = store.Ref{Queue: s.namespace().Queue(spec.Destination, store.Priority(spec.Priority)), ID: spec.ID}
	}
	return r
}

// Return takes a job out of the backlog of the caller of ctx that was taken, and refused because it would expire. After an
// error it counts there for some seconds.
func (s *System) Return(ctx context.Context, spec *jobs.Spec, refused error) {
	id, _ := access.From(ctx)
	if _, late := errors.AsType[*jobs.LateError](refused); late && id.Quota().MaxBacklog > 0 {
		_ = s.namespace().ReturnQuota(ctx, s.rdb, id.Name, s.ref(spec))
	}
}

// sealed encrypts a cursor for the caller, or decrypts it: it holds ids of jobs that were passed over, and would read
// whether others exist. All instances share the key, in Redis.
func (s *System) sealed(ctx context.Context, cursor string, open bool) (string, error) {
	id, _ := access.From(ctx)
	if cursor == "" || !id.Confined() {
		return cursor, nil
	}
	fresh, name := make([]byte, 32), s.namespace().Key("cursor_key")
	_, _ = rand.Read(fresh) // never fails
	err := s.rdb.SetArgs(ctx, name, fresh, redis.SetArgs{Mode: "NX"}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	key, err := s.rdb.Get(ctx, name).Bytes()
	if err != nil {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return "", fmt.Errorf("seal a cursor: %w", err)
	}
	if !open {
		return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, []byte(cursor), []byte(id.Name))), nil //nolint:gosec // it makes its nonces
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		raw, err = aead.Open(nil, nil, raw, []byte(id.Name))
	}
	if err != nil {
		return "invalid", nil //nolint:nilerr // the list says so
	}
	return string(raw), nil
}
