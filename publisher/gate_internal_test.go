package publisher

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/breaker"
	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
)

// slow makes the way to Redis take its time.
type slow time.Duration

func (d slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case <-time.After(time.Duration(d)):
			return next(ctx, cmd)
		case <-ctx.Done():
			cmd.SetErr(os.ErrDeadlineExceeded) // as a socket does
			return cmd.Err()
		}
	}
}

func (d slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A call to Redis that begins just before the gate has waited for long enough is not cut,
// so that it does not look as if Redis did not answer.
func TestGateLeavesCommandsTheirTime(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	o := breaker.Options{Destination: redistest.Name(t, "d"), FailureThreshold: 1, Cooldown: 50 * time.Millisecond}
	b, err := breaker.New(t.Context(), server.Client(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := b.Allow(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Report(t.Context(), breaker.RateLimited(0)); err != nil {
		t.Fatal(err)
	}
	rdb := server.Client(t)
	rdb.AddHook(slow(200 * time.Millisecond))
	late, err := breaker.New(t.Context(), rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	for deadline := time.Now().Add(time.Minute); late.View().State != breaker.HalfOpen; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the breaker is not HALF_OPEN")
		}
	}
	g := &gate{b: late, reach: &reach{}}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	grant, err := g.Wait(ctx, func(ctx context.Context) (int, error) {
		<-time.After(20 * time.Millisecond)
		return 1, ctx.Err()
	})
	if err != nil {
		t.Fatalf("the gate was cut: %v", err)
	}
	if p, ok := grant.Permit.(breaker.Permit); !ok || !p.Probe() {
		t.Errorf("granted %+v, want the probe", grant)
	}
}

// A shutdown cuts a call to Redis that hangs.
func TestGateEndsCommandsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	command, done := forCommand(ctx)
	defer done()
	cancel()
	select {
	case <-command.Done():
	case <-time.After(10 * time.Second):
		t.Error("it goes on")
	}
}
