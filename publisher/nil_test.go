package publisher_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	api := newHTTP(t, publisher.HTTPOptions{URL: "http://127.0.0.1:1"})
	job := &jobs.Job{ID: "1", Destination: "shop"}
	handler := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	redistest.NilIsRefused(t, "publisher", map[string]func() error{
		"new": func() error {
			_, err := publisher.New(nil, publisher.Options{})
			return err
		},
		"attempt": func() error {
			_, err := publisher.Attempt(ctx, handler, nil, time.Now())
			return err
		},
		"attempt, handler": func() error {
			_, err := publisher.Attempt(ctx, nil, job, time.Now())
			return err
		},
		"attempt, option": func() error {
			_, err := publisher.Attempt(ctx, handler, job, time.Now(), nil)
			return err
		},
		"attempt, typed": func() error {
			_, err := publisher.Attempt(ctx, publisher.Typed[int](nil), job, time.Now())
			return err
		},
		"func": func() error { return publisher.Func(nil).Publish(ctx, job) },
		"typed": func() error {
			return publisher.Typed(func(context.Context, *jobs.Job, int) error { return nil }).Publish(ctx, nil)
		},
		"http": func() error { return api.Publish(ctx, nil) },
		"new http": func() error {
			_, err := publisher.NewHTTP(publisher.HTTPOptions{URL: "http://127.0.0.1:1", Tokens: publisher.TokensFunc(nil)})
			return err
		},
		"token": func() error {
			publisher.TokensFunc(nil).Token("alice")
			return nil
		},
		"observe": func() error {
			(*publisher.Options)(nil).Observe(publisher.Observer{})
			return nil
		},
	})
	if publisher.Client(publisher.WithClient(ctx, nil)) != nil {
		t.Error("a client out of nothing")
	}
}
