package publisher

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidegate/tidegate/breaker/breakerhttp"
	"github.com/tidegate/tidegate/internal/queue/engine"
	"github.com/tidegate/tidegate/internal/queue/store"
	"github.com/tidegate/tidegate/jobs"
)

// errNoPublicURL fails a job that uses {{ callback }}.
var errNoPublicURL = errors.New("{{ callback }} needs the address at which the API reaches Tidegate: set PUBLIC_URL of the worker")

// callback returns the URL at which the API reports the result of a job, with a token for this call. Redis has the token
// before the API can use it: without Redis no call is made.
func (d *destination) callback(job *jobs.Job, delivery *engine.Delivery) (string, error) {
	if d.o.PublicURL == "" {
		return "", errNoPublicURL
	}
	token, hash := store.NewToken(delivery.Queue, delivery.ID)
	ok, err := d.engine.Expect(delivery, hash, job.Attempt, d.terms(job))
	if err == nil && !ok {
		err = errors.New("another worker has the job")
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", breakerhttp.ErrNotSent, err)
	}
	return strings.TrimRight(d.o.PublicURL, "/") + "/v1/completions/" + token, nil
}
