package publisher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/jobs"
)

// limitKeys returns engine.Options.KeyOf: nil without KeyBy.
func (d *decider) limitKeys() func(msg, own string) string {
	if d.s.keyBy == nil {
		return nil
	}
	return func(encoded, own string) string {
		job, err := decoded(encoded)
		if err != nil {
			return own // process fails the job
		}
		key, err := guarded(d.s.keyBy, job)
		if err != nil {
			if d.unkeyed.Allow(err.Error()) {
				d.log.Warn("KEY_BY gives no key for a job; the breaker and limits of its own key hold it", "job", job.ID, "error", clean(err.Error(), maxError))
			}
			return job.Key
		}
		return toKey(key)
	}
}

// maxKey is the longest key, in bytes.
const maxKey = 128

// toKey makes a key from a text, such as v1:chat from the path /v1/chat: slashes become colons, and other characters
// that a key cannot have become hyphens. Leading characters that no key begins with are left out. If more than
// slashes has changed, or the text is too long, a hash of the text follows, so that two texts have two keys.
func toKey(text string) string {
	key := strings.Trim(strings.ReplaceAll(text, "/", ":"), ":")
	if key == "" || jobs.ValidName(key) {
		return key
	}
	sum := sha256.Sum256([]byte(text))
	hash := hex.EncodeToString(sum[:8])
	key = strings.TrimLeft(strings.Map(func(r rune) rune {
		if r < 0x80 && jobs.ValidName("a"+string(r)) {
			return r
		}
		return '-'
	}, key), "._:@-")
	return strings.TrimLeft(key[:min(len(key), maxKey-1-len(hash))]+"-"+hash, "-")
}

// rekeyed reports whether the job has a key, and by KeyBy another one holds it, or none.
func (d *decider) rekeyed(job *jobs.Job, permit breaker.Permit) bool {
	return d.s.keyBy != nil && job.Key != "" && job.Key != permit.Key()
}

// tokenPermit returns a permit of the breaker of the job's own key where another key holds the job by
// KeyBy: that breaker is open while the API refuses the token of the key. The zero permit without one.
func (d *decider) tokenPermit(job *jobs.Job, permit breaker.Permit) (breaker.Permit, error) {
	if !d.rekeyed(job, permit) {
		return breaker.Permit{}, nil
	}
	own := d.breaker.Key(job.Key)
	if own.View().State == breaker.Closed {
		return breaker.Permit{}, nil
	}
	return own.Allow(d.calls) //nolint:wrapcheck // it is an outcome
}

// reportToken is report, but a refused token of the job's own key opens the breaker of that key, not of
// the one that holds the job by KeyBy. token is the permit of that key, if it was open.
func (d *destination) reportToken(token, permit breaker.Permit, job *jobs.Job, r callResult) breaker.Status {
	ofKey := r.denied() && r.scope != jobs.ScopeGlobal && r.kind != noOwnCredentials
	if !d.rekeyed(job, permit) || token.Key() == "" && !ofKey {
		return d.report(permit, job, r)
	}
	calls := context.WithoutCancel(d.calls)
	if token.Key() == "" {
		var err error
		if token, err = d.breaker.Key(job.Key).Allow(calls); err != nil {
			ofKey = false // it is open already, or unknown: the job waits alone
		}
	}
	if !ofKey {
		status := d.report(permit, job, r)
		switch {
		case r.denied():
			return d.breaker.Key(job.Key).Status()
		case r.accepted(job.Response):
			_, err := token.Report(calls, breaker.Success())
			d.reported(err)
		default:
			d.release(token)
		}
		return status
	}
	if r.called {
		_, err := permit.Report(calls, breaker.Neutral())
		d.reported(err)
	} else {
		d.release(permit)
	}
	return d.report(token, job, r)
}
