package alerts_test

import (
	"errors"
	"testing"

	"github.com/tidegate/tidegate/alerts"
	"github.com/tidegate/tidegate/alerts/notice"
	"github.com/tidegate/tidegate/internal/testkit/redistest"
)

func TestNilArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, err := alerts.New(nil, alerts.Options{Notifiers: []notice.Notifier{terminal{}}})
	if err != nil {
		t.Fatal(err)
	}
	redistest.NilIsRefused(t, "alerts", map[string]func() error{
		"run":     func() error { return a.Run(ctx) },
		"serve":   func() error { return a.Serve(nil) },
		"publish": func() error { return a.Publish(ctx, nil) },
		"test":    func() error { return a.Test(ctx, nil) },
	})
	redistest.NilIsRefused(t, "publisher", map[string]func() error{"observe": func() error { a.Observe(nil); return nil }})
	notice.Observer(nil).Observe("slack", "message", errors.New("away"))
}
