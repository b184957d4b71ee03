package alerts_test

import (
	"context"
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
	samples := []notice.Sample{{What: "one"}}
	try := func(string, string, func() error) bool { return true }
	redistest.NilIsRefused(t, "notice", map[string]func() error{
		"test, try": func() error { notice.Test(ctx, "x", samples, nil, terminal{}); return nil },
		"test, to":  func() error { notice.Test(ctx, "x", samples, try, nil); return nil },
		"render":    func() error { notice.Text{notice.Plain("a")}.Render(nil); return nil },
		"post, client": func() error {
			return notice.PostJSON(ctx, nil, "http://127.0.0.1:1", 1, func([]byte) string { return "" })
		},
	})
	if got := notice.Words(nil); got != "" {
		t.Errorf("no error is %q", got)
	}
	notice.Observer(nil).Observe("slack", "message", errors.New("away"))
	if err := (&notice.Root{}).Extend(context.Background()); err != nil {
		t.Error(err)
	}
	if notice.NewHTTPClient(nil) == nil || notice.RetryAfter(nil) != 0 {
		t.Error("no client, or a wait without headers")
	}
}
