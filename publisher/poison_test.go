package publisher_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidegate/tidegate/internal/queue/store"

	"github.com/redis/go-redis/v9"

	"github.com/tidegate/tidegate/internal/test/testkit/redistest"
	"github.com/tidegate/tidegate/jobs"
	"github.com/tidegate/tidegate/publisher"
)

// A test that needs a worker which dies runs this test binary again.
const (
	victimAddr        = "PUBLISHER_TEST_ADDR"
	victimDestination = "PUBLISHER_TEST_DESTINATION"
	victimPoison      = "PUBLISHER_TEST_POISON"
)

// exitPoisoned is the exit status of a worker that its job has killed.
const exitPoisoned = 66

// crowd is how many jobs there are, and how many one worker can have in hand.
const crowd = 10

// TestVictim is the process of a worker that one job kills; by itself it does
// nothing. The job does so once all have been started, so that at first all of them
// are in hand.
func TestVictim(t *testing.T) {
	addr := os.Getenv(victimAddr)
	if addr == "" {
		t.Skip("runs in processes of other tests only")
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test is over
	}()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	p, err := publisher.New(rdb, publisher.Options{
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), RetryLoopInterval: 50 * time.Millisecond,
		RecoverSpread: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	var inHand atomic.Int32
	all := make(chan struct{})
	err = p.Handle(os.Getenv(victimDestination), publisher.Func(func(ctx context.Context, j *jobs.Job) error {
		poison := j.ID == os.Getenv(victimPoison)
		if j.Crashes == 0 {
			if inHand.Add(1) == crowd {
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
				return ctx.Err()
			}
			if !poison {
				<-ctx.Done() // it is still in hand when the process ends
			}
		}
		if poison {
			// Another suspect that was just fetched is put back at once.
			for j.Crashes > 0 && rdb.LLen(ctx, store.ActiveKey(store.DefaultNamespace.Queue(j.Destination, store.Default))).Val() > 1 {
				<-time.After(time.Millisecond)
			}
			os.Exit(exitPoisoned)
		}
		return nil
	}), publisher.Concurrency(crowd))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// dieOfPoison runs a worker until it is dead and returns what it had in hand.
func (b *fixture) dieOfPoison(s *redistest.Server, poison string) []string {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.count=1")
	cmd.Env = append(os.Environ(), victimAddr+"="+s.Addr(), victimDestination+"="+b.dest, victimPoison+"="+poison)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	defer stdin.Close()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		b.t.Fatalf("the job did not kill its worker within 2 minutes:\n%s", &out)
	}
	if code := cmd.ProcessState.ExitCode(); code != exitPoisoned {
		b.t.Fatalf("the worker ended with %d:\n%s", code, &out)
	}
	return b.ageLeases()
}

// aged is when lost leases ended: one instant, or the leases of a job that is lost twice would seem to be extended.
var aged = float64(time.Now().Add(-2 * time.Minute).Unix())

// runUnextended is run for a worker that extends no lease, as if it were dead.
func (b *fixture) runUnextended(o publisher.Options, f func(context.Context, *jobs.Job) error, opts ...publisher.HandleOption) {
	b.t.Helper()
	own := *b
	rdb := redis.NewClient(b.rdb.(*redis.Client).Options())
	b.t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(noExtensions{store.LeaseKey(b.queue())})
	own.rdb = rdb
	own.run(o, f, opts...)
}

// noExtensions keeps the script from Redis that extends leases: of those whose first key is that of the
// leases, the one that has a key for each job.
type noExtensions struct{ leases string }

func (noExtensions) DialHook(next redis.DialHook) redis.DialHook { return next }

func (noExtensions) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (n noExtensions) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 4 && args[3] == n.leases && args[2] != 1 {
			return nil
		}
		return next(ctx, cmd)
	}
}

// ageLeases makes the leases of all jobs in flight look lost, as if their worker were dead.
func (b *fixture) ageLeases() []string {
	b.t.Helper()
	ctx := b.t.Context()
	ids, err := b.rdb.LRange(ctx, store.ActiveKey(b.queue()), 0, -1).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	var lost []redis.Z
	for _, id := range ids {
		lost = append(lost, redis.Z{Score: aged, Member: id})
	}
	if len(lost) == 0 {
		return ids
	}
	if err := b.rdb.ZAddXX(ctx, store.LeaseKey(b.queue()), lost...).Err(); err != nil {
		b.t.Fatal(err)
	}
	return ids
}

// One job among ten kills its worker: it fails as poison after the third time, and
// those that were in hand with it at the first time complete.
func TestPoisonJobAmongTen(t *testing.T) {
	t.Parallel()
	redistest.Slow(t)
	s := redistest.Shared(t)
	b := fixtureOn(t, s)
	ids := b.enqueueMany(crowd)
	poison := ids[3]
	if got := b.dieOfPoison(s, poison); len(got) != crowd {
		t.Fatalf("%d jobs were in hand at the first crash, want all %d", len(got), crowd)
	}
	for n := 2; n <= 3; n++ {
		// From now on it is a suspect, and suspects run alone: others may have been fetched, and wait.
		if got := b.dieOfPoison(s, poison); !slices.Contains(got, poison) {
			t.Errorf("in hand at crash %d: %v, want the poison job %s", n, got, poison)
		}
	}
	var called tally
	b.run(b.options(), func(_ context.Context, j *jobs.Job) error {
		called.add(j.ID)
		return nil
	})
	for _, id := range ids {
		want, crashes := jobs.Completed, 1
		if id == poison {
			want, crashes = jobs.Failed, 3
		}
		if got := b.waitStatus(id, want); got.Crashes != crashes || got.Attempt != 0 || got.RescheduleCount != 0 {
			t.Errorf("job %s is %s: crashes %d, attempt %d, %d reschedules; want %d, 0, 0",
				id, got.Status, got.Crashes, got.Attempt, got.RescheduleCount, crashes)
		}
	}
	if got := b.get(poison); got.LastError != "poison: 3 workers died while running this job" {
		t.Errorf("last error of the poison job: %q", got.LastError)
	}
	if n := called.of(poison); n != 0 {
		t.Errorf("the poison job was called %d times after its third crash", n)
	}
	entries, err := b.client.History(context.Background(), poison)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, e := range entries {
		events = append(events, e.Event)
	}
	want := "created" + strings.Repeat(" started worker_lost recovered", 2) + " started worker_lost failed"
	if got := strings.Join(events, " "); got != want {
		t.Errorf("history of the poison job: %s\nwant %s", got, want)
	}
	b.mustBeEmpty()

	// Somebody has mended what killed the worker: it runs again, with a clean slate.
	if err := b.client.Retry(context.Background(), poison); err != nil {
		t.Fatal(err)
	}
	if got := b.waitStatus(poison, jobs.Completed); got.Crashes != 0 || called.of(poison) != 1 {
		t.Errorf("after the retry: crashes %d, %d calls", got.Crashes, called.of(poison))
	}
}
