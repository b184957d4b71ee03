package publisher_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
	"github.com/tidegate/tidegate/publisher/httpdest"
)

func succeed(context.Context, *jobs.Job) error { return nil }

// What Handle accepts, Run can serve.
func TestHandleValidatesItsOptions(t *testing.T) {
	t.Parallel()
	p, err := publisher.New(redistest.Shared(t).Client(t), publisher.Options{Logger: redistest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	const breakerOptions = "publisher: handle api: breaker: options: "
	for name, tc := range map[string]struct {
		destination string
		handler     publisher.Handler
		opts        []publisher.HandleOption
		want        string
	}{
		"no handler":        {"api", nil, nil, "publisher: handle api: the handler is nil"},
		"a nil Func":        {"api", publisher.Func(nil), nil, "publisher: handle api: the handler is nil"},
		"a nil HTTP":        {"api", (*httpdest.Destination)(nil), nil, "publisher: handle api: the handler is nil"},
		"a bad name":        {"API", publisher.Func(succeed), nil, `publisher: handle API: name "API" must be 1 to 63 of a-z, 0-9 and -, starting with a letter or digit`},
		"no concurrency":    {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Concurrency(0)}, "publisher: handle api: concurrency must be at least 1, is 0"},
		"below it":          {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Concurrency(-1)}, "publisher: handle api: concurrency must be at least 1, is -1"},
		"no time":           {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Timeout(0)}, "publisher: handle api: timeout must be positive, is 0s"},
		"negative time":     {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Timeout(-time.Hour)}, "publisher: handle api: timeout must be positive, is -1h0m0s"},
		"a bad threshold":   {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Breaker(breaker.Options{FailureThreshold: -1})}, breakerOptions + "FailureThreshold is -1: want at least 1"},
		"a bad cooldown":    {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Breaker(breaker.Options{Cooldown: -1, ProbeTimeout: -1})}, breakerOptions + "Cooldown is -1ns: want at least 1ms\nProbeTimeout is -1ns: want at least 1ms, and longer than a call can take"},
		"a bad multiplier":  {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Breaker(breaker.Options{CooldownMultiplier: 0.5})}, breakerOptions + "CooldownMultiplier is 0.5: want 1 to 1000"},
		"a bad rate":        {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Breaker(breaker.Options{Rate: breaker.Rates{{Calls: -1, Per: time.Second}}})}, breakerOptions + "Rate: it has -1 calls: want 1 to 1000000000"},
		"a short probe":     {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Breaker(breaker.Options{ProbeTimeout: time.Second})}, "ProbeTimeout is 1s, shorter than the timeout (30s): a second call could begin beside the probe"},
		"a bad order":       {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Order("keys", publisher.OnFailSkip)}, `publisher: handle api: the order "keys" is neither key nor none`},
		"a bad failure":     {"api", publisher.Func(succeed), []publisher.HandleOption{publisher.Order(jobs.OrderKey, "")}, `publisher: handle api: what a failed job does is "", neither skip nor block`},
		"a nil option":      {"api", publisher.Func(succeed), []publisher.HandleOption{nil}, "option 1 is nil"},
		"all of them wrong": {"API", publisher.Func(nil), []publisher.HandleOption{publisher.Concurrency(-1), publisher.Timeout(-1), publisher.Breaker(breaker.Options{FailureThreshold: -1})}, "the handler is nil\nconcurrency must be at least 1, is -1\ntimeout must be positive, is -1ns\nbreaker: options: FailureThreshold is -1: want at least 1"},
	} {
		if err := p.Handle(tc.destination, tc.handler, tc.opts...); err == nil || !strings.HasSuffix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	_, err = publisher.New(redistest.Shared(t).Client(t), publisher.Options{ShutdownTimeout: -time.Second, RetryLoopInterval: -1, RecoverSpread: -1})
	if want := "publisher: new: ShutdownTimeout must not be negative, is -1s\nRetryLoopInterval must not be negative, is -1ns\nRecoverSpread must not be negative, is -1ns"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// A Run that had nothing to do is none.
func TestRunCanBeRepeatedAfterHandle(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	p, err := publisher.New(b.rdb, b.options())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		if err := p.Run(ctx); err == nil || err.Error() != "publisher: run: no destination is handled; call Handle first" {
			t.Fatalf("Run without a destination: %v", err)
		}
	}
	if err := p.Handle(b.dest, publisher.Func(succeed)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	if e := b.result(b.enqueue().ID); e.Result != publisher.Completed {
		t.Errorf("job: %s", e.Result)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := p.Run(t.Context()); err == nil || err.Error() != "publisher: run: it was called before" {
		t.Errorf("another Run: %v", err)
	}
}

// The answer that a handler puts into its error is kept as one in Job.Response.
func TestAnswerOfARateLimitedErrorIsKept(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	o := b.options()
	answers, calls := make(chan publisher.Answer, 10), make(chan publisher.Call, 10)
	o.Observe(publisher.Observer{OnAnswer: func(a publisher.Answer) { answers <- a }})
	o.Observe(publisher.Observer{OnCall: func(c publisher.Call) { calls <- c }})
	b.run(o, func(context.Context, *jobs.Job) error {
		return errors.Join(errors.New("upload"), &jobs.RateLimitedError{RetryAfter: time.Hour, Response: &jobs.Response{Status: 420, Body: "enhance your calm"}})
	})
	id := b.enqueue().ID
	b.want(publisher.Rescheduled)
	if got := b.record(id).Response; got == nil || *got != (jobs.Response{Status: 420, Body: "enhance your calm"}) {
		t.Errorf("response %+v", got)
	}
	if a, c := <-answers, <-calls; a.Status != 420 || a.Body != "enhance your calm" || c.Status != 420 {
		t.Errorf("answer %+v, call %+v", a, c)
	}
}
