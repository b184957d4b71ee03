package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tidegate/tidegate/internal/serve/access"
	"github.com/tidegate/tidegate/internal/view/explain"
	"github.com/tidegate/tidegate/jobs"
)

// requestDigest identifies a request of one caller: two with the same digest are the same call.
func requestDigest(id access.Identity, s *jobs.Spec) string {
	h, r := sha256.New(), s.Request
	fmt.Fprintf(h, "%q", []string{id.Name, s.Destination, r.Method, r.Path, r.Query, string(r.Encoding), r.Headers["Content-Type"], s.Key, s.Batch, string(s.Payload)})
	return hex.EncodeToString(h.Sum(nil)[:20])
}

// abandoned takes over the job of the same request whose caller hung up within the last minute; nil if there is none.
// Only one request joins it.
func (a *api) abandoned(ctx context.Context, digest string, s *jobs.Spec) *jobs.Job {
	if digest == "" {
		return nil
	}
	id, err := a.ops.TakeAbandoned(ctx, digest)
	if err != nil || id == "" {
		return nil // without Redis the enqueue fails, too
	}
	return &jobs.Job{ID: id, Destination: s.Destination, Status: jobs.Running, Duplicate: true}
}

// abandon lets the next request of the same digest join the job.
func (a *api) abandon(ctx context.Context, digest string, job *jobs.Job) {
	if digest == "" || job == nil {
		return
	}
	if err := a.ops.Abandon(ctx, digest, job.ID); err != nil {
		a.log.WarnContext(ctx, "a job without a caller could not be noted; the same request will be another job", "job", job.ID, "error", err)
	}
}

// leave ends the wait of a caller that hung up, or is strict and gets an error. Without an Idempotency-Key its request
// comes again as another job: this job is cancelled if no call of it has begun and it cannot start now, or its caller has
// left; else the next request joins it.
func (a *api) leave(r *http.Request, job *jobs.Job, digest string, left bool) *Problem {
	ctx, cancel := begun(r.Context())
	defer cancel()
	now, err := a.ops.Job(ctx, job.ID)
	p := newProblem(http.StatusGatewayTimeout, "job %s has not ended within the wait; it goes on", job.ID)
	p.retryAfter = 1
	blocked := err == nil && now.Waiting != nil && cannotStart[now.Waiting.Reason]
	if blocked {
		p = newProblem(http.StatusServiceUnavailable, "the call cannot be made now: %s", now.Waiting.Text)
		p.Reason, p.Until, p.retryAfter = strings.Replace(now.Waiting.Reason, explain.ByRate, "rate", 1), now.Waiting.Until, retrySoon
		if until := now.Waiting.Until; until != nil {
			p.retryAfter = max(1, int(math.Ceil(time.Until(*until).Seconds())))
		}
	}
	if digest == "" {
		return p
	}
	if err == nil && now.Attempt == 0 && (left || blocked) &&
		a.client.Cancel(ctx, job.ID, jobs.IfPending(), jobs.By("gateway"), jobs.Because("its caller has left, and no call had begun")) == nil {
		return p
	}
	a.abandon(ctx, digest, job)
	return p
}

// cannotStart are the reasons for which a job cannot start, whatever its place in the queue.
var cannotStart = map[string]bool{
	explain.BreakerOpen: true, explain.BreakerTripped: true, explain.BreakerProbing: true, explain.Credentials: true, explain.ByRate: true,
}

// setPassed sets the headers that the worker kept of the API's response. Paths of the gateway in Link and Location
// become URLs with the address that the caller used.
func setPassed(h http.Header, r *http.Request, job *jobs.Job) {
	scheme := "http"
	if outermost, _, _ := strings.Cut(r.Header.Get("X-Forwarded-Proto"), ","); strings.EqualFold(strings.TrimSpace(outermost), "https") {
		scheme = "https"
	}
	base := scheme + "://" + r.Host
	for line := range strings.Lines(job.Response.Headers) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch prefix := gatewayPrefix + job.Destination; {
		case name == "Link":
			value = strings.ReplaceAll(value, "<"+prefix, "<"+base+prefix)
		case name == "Location" && strings.HasPrefix(value, prefix):
			value = base + value
		}
		h.Set(name, value)
	}
}
