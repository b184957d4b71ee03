package alerts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/alerts/pagerduty"
	"github.com/tidegate/tidegate/alerts/slack"
	"github.com/tidegate/tidegate/breaker"
)

// stuck is a connection to a Redis that does not answer.
type stuck struct{ entered chan struct{} }

func (s *stuck) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stuck) wait(ctx context.Context) error {
	select {
	case s.entered <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *stuck) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := s.wait(ctx)
		cmd.SetErr(err)
		return err
	}
}

func (s *stuck) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := s.wait(ctx)
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
}

func opened(i int) breaker.Event {
	return breaker.Event{
		At: start, Name: fmt.Sprint("d", i), From: breaker.Closed, To: breaker.Open, Incident: fmt.Sprint("i", i), Generation: uint64(i) + 1,
	}
}

// Observers never wait, not even for a Redis that hangs, and up to
// the bounds nothing of it is lost.
func TestReportsDoNotBlock(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	hook := &stuck{make(chan struct{}, 1)}
	a, err := New(connect(t, b.addr, b.db, hook), configured(b).options(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = a.Run(ctx) }()
	<-hook.entered
	const each = 300
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		for i := range each {
			a.onTransition(opened(i))
			a.onTransition(breaker.Event{At: start, Name: fmt.Sprintf("d%d/k", i), Key: "k", From: breaker.Closed, To: breaker.Open, Incident: fmt.Sprint("k", i)})
			a.notePoison(single{Destination: fmt.Sprint("d", i), Job: "j", Count: 3})
			a.noteRefusal(refusal{At: start, Destination: fmt.Sprint("d", i), Job: "j", Status: 429})
		}
	}()
	select {
	case <-reported:
	case <-time.After(time.Minute):
		t.Fatal("reports wait for Redis")
	}
	cancel()
	<-ran
	// All of it is still there, once Redis answers.
	a.rdb, a.store.rdb, a.client, a.now = b.rdb, b.rdb, b.workers[0].client, b.workers[0].now
	for n := 0; ; n++ {
		if a.flush(t.Context()) == nil {
			break
		}
		if n > 10 {
			t.Fatal("Redis takes nothing")
		}
	}
	b.fetch()
	kinds := map[string]int{}
	for _, task := range b.tasks {
		kinds[task.job.Key]++
	}
	// For each: opened, why, the keys, the poison job; and opened for PagerDuty.
	same(t, "jobs", map[string]int{"slack": 4 * each, "pagerduty": each}, kinds)
}

// What is remembered while Redis is away is bounded.
func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1, withoutPager)
	a := b.workers[0]
	for i := range maxTriggers + 1000 {
		a.onTransition(opened(i))
		a.noteRefusal(refusal{Destination: fmt.Sprint("d", i), Job: "j"})
	}
	for range 100 {
		a.noteRefusal(refusal{Destination: "d0", Job: "j"})
	}
	same(t, "triggers", maxTriggers, len(a.buffer.triggers))
	same(t, "answers", maxTriggers, len(a.buffer.answers))
	same(t, "answers of one", maxAnswers, len(a.buffer.answers["d0"]))
}

// All workers make the same jobs of the same events.
func TestTriggersOfEvents(t *testing.T) {
	t.Parallel()
	at := start.Add(7 * time.Second)
	tests := map[string]struct {
		event breaker.Event
		want  []string
	}{
		"opened": {
			breaker.Event{Name: "shop", From: breaker.Closed, To: breaker.Open, Incident: "i1", Generation: 5},
			[]string{"i1.opened.pagerduty pagerduty", "i1.opened.slack slack", "i1.why.slack slack +8s"},
		},
		"a failed probe is nothing for PagerDuty": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Open, Incident: "i1", Generation: 7, Probes: 1},
			[]string{"i1.probe-7.slack slack"},
		},
		"many failed probes are summed up": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Open, Incident: "i1", Generation: 70, Probes: 21},
			[]string{fmt.Sprintf("i1.probes-%d.slack slack +30s", start.Add(30*time.Second).Unix())},
		},
		"closed": {
			breaker.Event{Name: "shop", From: breaker.HalfOpen, To: breaker.Closed, Incident: "i1", Generation: 8},
			[]string{"i1.closed.pagerduty pagerduty", "i1.closed.slack slack"},
		},
		"half open makes no alert":      {breaker.Event{Name: "shop", From: breaker.Open, To: breaker.HalfOpen, Incident: "i1"}, nil},
		"a reset of one that is CLOSED": {breaker.Event{Name: "shop", From: breaker.Closed, To: breaker.Closed}, nil},
		"a key": {
			breaker.Event{Name: "shop/ann", Key: "ann", From: breaker.Closed, To: breaker.Open, Incident: "i1"},
			[]string{fmt.Sprintf("shop.keys.%d.slack slack +10s", start.Add(10*time.Second).Unix())},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, err := New(nil, (&setup{Slack: slack.Options{Token: "xoxb-1", Channel: "#a"}, Pager: pagerduty.Options{Key: "k"}}).options(t))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // observed several times
				e := test.event
				e.At = at
				a.onTransition(e)
			}
			var got []string
			for _, id := range slices.Sorted(maps.Keys(a.buffer.triggers)) {
				one := a.buffer.triggers[id]
				s := one.id + " " + one.to.Name()
				if !one.at.IsZero() {
					s += fmt.Sprintf(" +%v", one.at.Sub(start))
				}
				got = append(got, s)
			}
			same(t, "jobs", test.want, got)
		})
	}
}

// Run writes all that happens to Redis, the last too, and leaves no goroutine: that no
// goroutine is left is seen at the end of all tests.
func TestRun(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 1)
	a := b.workers[0]
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- a.Run(ctx) }()
	a.onTransition(opened(1))
	deadline := time.After(time.Minute)
	for {
		if _, err := a.client.Get(t.Context(), "i1.opened.slack"); err == nil {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the job does not come to be")
		case <-time.After(5 * time.Millisecond):
		}
	}
	a.onTransition(opened(2))
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := a.client.Get(t.Context(), "i2.opened.slack"); err != nil {
		t.Errorf("what happened at the end: %v", err)
	}
}

// A look around sees what is open, and one of the workers looks each minute.
func TestOneWorkerScansEachMinute(t *testing.T) {
	t.Parallel()
	b := newHarness(t, 3, withoutPager)
	b.lookAround()
	b.trip("shop")
	b.settle()
	for i := range 3 {
		b.play(time.Duration(i+1) * time.Minute)
		b.lookAround()
		b.settle()
	}
	var looks []string
	for _, task := range b.tasks {
		if task.job.ID[:9] == "shop.scan" {
			looks = append(looks, task.job.ID)
		}
	}
	slices.Sort(looks)
	same(t, "looks", 3, len(looks))
}
