package publisher_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/tidegate/tidegate/breaker/hint"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

type formPublisher struct {
	client     *http.Client
	url, token string
}

func (f formPublisher) Publish(ctx context.Context, job *jobs.Job) error {
	var picture struct{ Title, Tag string }
	if err := json.Unmarshal(job.Payload, &picture); err != nil {
		return jobs.Discard(err) // failed, no retry
	}
	form := url.Values{"title": {picture.Title}, "tag": {picture.Tag}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader(form.Encode()))
	if err != nil {
		return jobs.Discard(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Idempotency-Key", job.ID)
	resp, err := f.client.Do(req)
	if err != nil {
		return err // a failure, retried by the job's policy
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	job.Response = &jobs.Response{Status: resp.StatusCode, Body: string(body)} // kept with the job
	forbidden := resp.StatusCode == http.StatusForbidden
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, forbidden && strings.Contains(string(body), "rate limit"):
		return jobs.RateLimited(hint.Parse(resp.Header, true, time.Now()).Wait) // counts against the breaker
	case forbidden:
		return jobs.Discard(errors.New("a permission is missing"))
	case resp.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("answered %s", resp.Status)
	}
	return nil
}

// A handler in Go sends what the HTTP destination does not, here a form, and reads the body
// of a 403 to tell a limit from a missing permission.
func ExampleHandler_form() {
	const limit, permission = "secondary rate limit", "resource not accessible"
	answers := map[string]string{"Dusk": limit, "Noon": permission}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.FormValue("title"), r.FormValue("tag"), r.Header.Get("Idempotency-Key"))
		if answer := answers[r.FormValue("title")]; answer != "" {
			http.Error(w, answer, http.StatusForbidden)
		}
	}))
	defer api.Close()

	f := formPublisher{client: &http.Client{Timeout: time.Minute}, url: api.URL, token: "the-token"}
	for _, title := range []string{"Dawn", "Dusk", "Noon"} {
		payload := map[string]string{"title": title, "tag": "sky"}
		job := publishertest.NewJob(jobs.New("gallery", payload, jobs.ID(strings.ToLower(title))))
		fmt.Println(publishertest.Publish(context.Background(), f, job))
	}
	// Output:
	// Dawn sky dawn
	// completed
	// Dusk sky dusk
	// rescheduled by 1s, counts against the breaker: rate limited
	// Noon sky noon
	// failed: a permission is missing
}
