package publishertest_test

import (
	"context"
	"testing"

	"github.com/tidegate/tidegate/internal/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/publishertest"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	ctx, job := t.Context(), publishertest.NewJob(jobs.New("shop", 1))
	handler := publisher.Func(func(context.Context, *jobs.Job) error { return nil })
	redistest.NilIsRefused(t, "publishertest", map[string]func() error{
		"new job":            func() error { publishertest.NewJob(nil); return nil },
		"new job, option":    func() error { publishertest.NewJob(jobs.New("shop", 1), nil); return nil },
		"new client":         func() error { publishertest.NewClient(nil).Close(); return nil },
		"publish":            func() error { publishertest.Publish(ctx, handler, nil); return nil },
		"publisher, publish": func() error { publishertest.Publish(ctx, nil, job); return nil },
		"play":               func() error { publishertest.Play(ctx, handler, nil, 1); return nil },
		"publisher, play":    func() error { publishertest.Play(ctx, nil, job, 1); return nil },
	})
}
